Feature: Failures
  A step that fails is a result, not an accident: the failed state is kept in a checkpoint, the plan's policy decides
  what the sandboxes look like afterwards, and the user reads what happened and how to go on.

  Scenario: The message names the step, the end of its output, the checkpoints and the commands that go on
    Given the plan
      """
      steps:
        - {name: good, run: echo 2 > version.txt}
        - name: bad
          run: |
            echo half > half.txt; rm -r src; echo 5 >> "$HOLDFAST_RESOURCE_DATA/orders.csv"
            seq 1 100; echo "no such luck" >&2
            test -e "$HOME/luck"
        - {name: never reached, run: echo 3 > version.txt}
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    And it says
      """
      Step 2 (bad) failed: the command ended with exit code 1
      | 100
      | no such luck
      the files when it failed
      before step 2 (bad)
      holdfast plan rollback {plan} cp_
      holdfast plan correct --mode revert --guidance "what to do instead"
      holdfast plan execute {plan}
      """
    But it does not say "| 50"
    And in the sandbox of "shop" this prints
      """
      $ cat version.txt src/app.py ../data/orders.csv; ls
      2
      print('hello')
      1;2;3
      README.md
      src
      version.txt
      """
    And my files are untouched
    And "plan status" has
      | value               | is                                                       |
      | state               | errored                                                  |
      | error               | step 2 (bad) failed: the command ended with exit code 1  |
      | last_completed_step | 0                                                        |
      | steps[1].state      | failed                                                   |
      | steps[2].state      | pending                                                  |
    Given in "user" I do
      """
      touch luck
      """
    When I run "holdfast plan execute latest --format json"
    Then it ends with exit code 0
    And the data has
      | value          | is        |
      | state          | complete  |
      | error          | null      |
      | steps[0].state | succeeded |
      | steps[1].state | succeeded |
    And in the sandbox of "shop" this prints
      """
      $ cat version.txt half.txt ../data/orders.csv; ls
      3
      half
      1;2;3
      5
      README.md
      half.txt
      version.txt
      """

  Scenario Outline: The policy can ask for something else after a failure: <policy>
    Given the plan
      """
      policy: {on_failure: <policy>}
      steps:
        - {name: good, run: echo 2 > version.txt, resource: shop}
        - {name: bad, run: echo 9 > orders.csv && exit 3, resource: data}
      """
    When I run "holdfast plan execute plan.yaml --format json"
    Then it ends with exit code 1
    And the data has
      | value                  | is      |
      | state                  | errored |
      | failed_step.exit_code  | 3       |
      | failure_checkpoint_id  | an id   |
      | last_completed_step    | <done>  |
    And in the sandbox of "shop" this prints
      """
      $ echo $(cat version.txt ../data/orders.csv)
      <files>
      """

    Examples:
      | policy            | done | files   |
      | rollback_to_start | -1   | 1 1;2;3 |
      | keep              | 0    | 2 9     |

  Scenario: A step is tried again as often as it needs, but not more often than it may, each time in a clean sandbox
    Given the plan
      """
      steps:
        - name: works at the second try
          run: test ! -e trace && touch trace && test -e "$HOME/go" || { pause; exit 1; }
          retries: 5
        - {name: never works, run: test ! -e track && touch track && echo tried && exit 7, retries: 2}
      """
    When I run "holdfast plan execute plan.yaml" up to its pause
    And it goes on to its end
    Then it ends with exit code 1
    And it says "] works at the second try" 2 times
    And it says "] never works" 3 times
    And it says "] never works (try 3)" 1 time
    And it says "Step 2 (never works) failed: the command ended with exit code 7"
    And in the sandbox of "shop" this prints
      """
      $ ls
      README.md
      src
      trace
      version.txt
      """

  Scenario: A step that runs too long is stopped, with everything it started
    Given the plan
      """
      steps:
        - name: too long
          run: sleep 1001 & setsid sleep 1002 & (trap '' TERM HUP; sleep 1003) & echo started; sleep 1004
          timeout: 1
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    And it says
      """
      Step 1 (too long) failed: the command ran longer than 1 s and was stopped
      | started
      """
    And no process of the step is left

  Scenario: A plan is complete only if its validation accepts the result
    Given the plan
      """
      validate:
        - grep -q 2 version.txt
        - echo looking; test -e "$HOME/fixed"
      steps: [{name: raise the version, run: echo 2 > version.txt}]
      """
    When I run "holdfast plan execute plan.yaml --format json"
    Then it ends with exit code 1
    And the data has
      | value            | is                                    |
      | state            | errored                               |
      | failed_step.name | echo looking; test -e "$HOME/fixed"   |
      | output_tail      | looking                               |
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 4
    And my files are untouched
    Given in "user" I do
      """
      touch fixed
      """
    When I run "holdfast plan execute latest --format json"
    Then it ends with exit code 0
    And the data has
      | value | is       |
      | state | complete |
