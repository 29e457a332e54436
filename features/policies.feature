Feature: Policies
  What a plan may do, what becomes of its files when it fails, and how much of its history is kept is said in the plan
  file, and held to. What stands against a plan is found before anything of it runs, all of it at once.

  Scenario: Without rollback the failed state stays, another try starts from it, and nobody can go back
    Given the plan
      """
      policy: {rollback_enabled: false}
      steps: [{name: fail, run: echo x >> tries.txt; exit 1, retries: 2}]
      """
    When I run "holdfast plan execute plan.yaml --format json"
    Then it ends with exit code 1
    And the data has
      | value                  | is      |
      | state                  | errored |
      | steps[0].try_number    | 3       |
      | restored_checkpoint_id | null    |
    And in the sandbox of "shop" this prints
      """
      $ cat tries.txt
      x
      x
      x
      """
    When I run "holdfast plan rollback --yes latest {start}"
    Then it ends with exit code 4
    And it says "rollback_enabled"
    And nothing has changed

  Scenario: A step is tried exactly as often as it may, and every time it is decided
    Given steps may write to "~/outbox"
    And the plan
      """
      steps: [{name: fail, run: echo x >> "$HOME/outbox/tries"; touch trace; exit 1, retries: 2}]
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    And in "user" this prints
      """
      $ wc -l < outbox/tries; ls ../home/sandboxes/*/shop
      3
      README.md
      src
      version.txt
      """
    And the decisions are
      | type              | step | chosen                                              | mark       |
      | prompt_definition |      | a test plan                                         |            |
      | tool_invocation   | fail | echo x >> "$HOME/outbox/tries"; touch trace; exit 1 | superseded |
      | error_recovery    | fail | try again, try 2 of 3                               |            |
      | tool_invocation   | fail | echo x >> "$HOME/outbox/tries"; touch trace; exit 1 | superseded |
      | error_recovery    | fail | try again, try 3 of 3                               |            |
      | tool_invocation   | fail | echo x >> "$HOME/outbox/tries"; touch trace; exit 1 | superseded |
      | error_recovery    | fail | rollback and stop                                   |            |

  Scenario: All that is wrong with a plan is said at once, before anything runs
    Given in "shop" I do
      """
      mv .git ../elsewhere
      """
    And the plan
      """
      steps:
        - {name: harmless, run: echo 2 > version.txt}
        - {name: send, run: "true", checkpointable: false}
        - name: divide
          subplans: [{name: part, steps: [{name: send deep inside, run: "true", checkpointable: false}]}]
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 4
    And it says
      """
      for 2 reasons
      These steps write what no checkpoint can hold: send, send deep inside.
      shop is not a git repository
      require_checkpoints: false
      """
    And there is no sandbox

  Scenario: What no checkpoint can hold is run only if the plan says so
    Given the plan
      """
      policy: {require_checkpoints: false}
      steps: [{name: send, run: echo 2 > version.txt, checkpointable: false}]
      """
    When I run "holdfast plan execute plan.yaml --format json"
    Then it ends with exit code 0
    And the data has
      | value | is       |
      | state | complete |

  Scenario: Only so many checkpoints are kept; the first, the last and those with a label are, and moments stay whole
    Given in "shop" I do
      """
      printf 'def mark(context):\n    context.checkpoint(label="before it went wrong")\n' > steps.py
      """
    And the plan
      """
      policy: {max_checkpoints: 7}
      steps:
        - {run: echo 1 > version.txt && echo 1 > ../data/orders.csv}
        - {tool: python, args: {callable: "steps:mark"}}
        - {run: echo 3 > version.txt}
        - {run: echo 4 > version.txt && echo 4 > ../data/orders.csv}
        - {run: echo 5 > version.txt && echo 5 > ../data/orders.csv}
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 0
    And the checkpoints are
      | moments                    | step | resources  |
      | pre_execute                |      | shop, data |
      | manual                     | 2    | shop       |
      | on_tool_write, on_decision | 5    | shop       |
      | on_tool_write_complete     | 5    | shop, data |
      | post_execute               |      | shop       |
    When I run "holdfast checkpoint prune latest --keep 2"
    Then it ends with exit code 0
    And the checkpoints are
      | moments      | step | resources  |
      | pre_execute  |      | shop, data |
      | manual       | 2    | shop       |
      | post_execute |      | shop       |
    When I run "holdfast plan rollback --yes latest 'before it went wrong'"
    Then it ends with exit code 0
    And in the sandbox of "shop" this prints
      """
      $ cat version.txt ../data/orders.csv
      1
      1
      """
