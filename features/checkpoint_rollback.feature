Feature: Rollback
  "Go back to before it did that": all sandboxes exactly as they were, what was added since gone, the plan at the step
  of the checkpoint, later decisions superseded. History only grows, so a rollback can be taken back as well.

  Scenario: Everything is exactly as it was, and taking the rollback back brings everything back
    Given in "shop" I do
      """
      echo untracked > untracked.txt; mkdir build; echo ignored > build/out; echo staged > staged.txt; git add staged.txt
      """
    And the plan
      """
      steps:
        - name: begin
          run: |
            git commit --quiet --message begun; echo product > made.log; mkdir hollow; chmod 750 hollow
            ln -s "$HOLDFAST_RESOURCE_DATA" link; ln version.txt same-version
            touch -d 2001-02-03 "$HOLDFAST_RESOURCE_DATA/orders.csv"
        - {name: wait, run: pause, writes: false}
        - name: wreck
          run: |
            git stash --quiet --include-untracked; git branch extra; echo 9 > version.txt
            git commit --quiet --all --message wrecked
            rm -rf src hollow link made.log; chmod 777 README.md; mkdir -p deep/er; touch deep/er/file
            cd "$HOLDFAST_RESOURCE_DATA"
            rm -r empty latest; chmod 644 private.key; echo 4 >> orders.csv; mkdir orders; mkfifo pipe
        - {name: finish, resource: data, run: echo finished > finished.txt}
      """
    When I run "holdfast plan execute plan.yaml" up to its pause
    And I remember the sandboxes as "they were before the wreck"
    And it goes on to its end
    Then it ends with exit code 0
    Given I remember the sandboxes as "the plan had left them"
    And I note {before step 3} as {before the wreck}
    When I run "holdfast plan rollback --yes latest {before the wreck} --format json"
    Then it ends with exit code 0
    And the sandboxes are exactly as "they were before the wreck"
    And my files are untouched
    And the data has
      | value                                    | is                  |
      | rollback_summary.plan                    | {plan}              |
      | rollback_summary.checkpoint              | {before the wreck}  |
      | rollback_summary.label                   | null                |
      | impact.decisions_after_cp                | 2                   |
      | impact.tool_calls_after_cp               | 2                   |
      | impact.child_plans_invalidated           | 0                   |
      | post_rollback_state.phase                | execute             |
      | post_rollback_state.state                | queued              |
      | plan_id                                  | {plan}              |
    And the rollback counts each file it lists, among them
      | file              | action   |
      | shop/src/app.py   | restored |
      | shop/version.txt  | restored |
      | shop/made.log     | restored |
      | shop/deep/er/file | removed  |
      | data/private.key  | restored |
      | data/latest       | restored |
      | data/finished.txt | removed  |
      | data/pipe         | removed  |
    Given I note the answer's "left_checkpoint_id" as {what was left}
    Then "plan status" has
      | value               | is        |
      | phase               | execute   |
      | state               | queued    |
      | last_completed_step | 1         |
      | steps[1].state      | succeeded |
      | steps[2].state      | pending   |
      | decisions.length    | 3         |
    When I run "holdfast plan rollback --yes latest {what was left} --format json"
    Then it ends with exit code 0
    And the sandboxes are exactly as "the plan had left them"

  Scenario: A bad step, the rollback, and the undo of the rollback
    Given this plan has run
      """
      steps:
        - {name: good, run: echo good > good.txt}
        - {name: bad, run: rm -r src good.txt; echo sent >> outbox.txt, side_effects: true}
        - {name: go on, resource: data, run: echo 4 >> orders.csv}
      """
    And I remember the sandboxes as "the plan had left them"
    When I run "holdfast plan rollback --dry-run latest {before step 2}"
    Then it ends with exit code 0
    And it says
      """
      files reverted  4
      restored  shop/good.txt
      restored  shop/src/app.py
      removed   shop/outbox.txt
      decisions superseded  2
      not undone: step 2 (bad)
      execute / queued, at step 2, bad
      Nothing was changed.
      """
    And nothing has changed
    When I run "holdfast plan rollback --yes latest {before step 2} --format json"
    Then it ends with exit code 0
    And the data has
      | value                                    | is   |
      | rollback_summary.files_reverted          | 4    |
      | impact.decisions_after_cp                | 2    |
      | impact.side_effects_not_undone[0].step   | bad  |
      | post_rollback_state.state                | queued |
    And in the sandbox of "shop" this prints
      """
      $ cat good.txt src/app.py ../data/orders.csv; test -e outbox.txt || echo no outbox
      good
      print('hello')
      1;2;3
      no outbox
      """
    Given I note the answer's "left_checkpoint_id" as {what was left}
    When I run "holdfast plan rollback --yes latest {what was left}"
    Then it ends with exit code 0
    And the sandboxes are exactly as "the plan had left them"
    And "plan status" has
      | value               | is |
      | last_completed_step | 2  |
      | decisions.length    | 4  |

  Rule: Single files and folders of a checkpoint can be restored, and everything else stays

    Background:
      Given this plan has run
        """
        validate: [test -e src/app.py]
        steps:
          - {name: begin, run: echo text > src/text.txt}
          - {name: tidy, run: 'rm src/text.txt; echo n > src/new.txt; echo 2 > version.txt; echo 4 >> ../data/orders.csv'}
        """

    Scenario: A folder comes back exactly, the plan is checked again, and is applied
      When I run "holdfast plan rollback --yes --only shop:src latest {before step 2} --format json"
      Then it ends with exit code 0
      And the data has
        | value                          | is           |
        | only                           | ["shop:src"] |
        | post_rollback_state.state      | queued       |
        | impact.decisions_after_cp      | 0            |
      And the rollback counts each file it lists, among them
        | file              | action   |
        | shop/src/text.txt | restored |
        | shop/src/new.txt  | removed  |
      And in the sandbox of "shop" this prints
        """
        $ ls src; cat version.txt ../data/orders.csv
        app.py
        text.txt
        2
        1;2;3
        4
        """
      And "plan status" has
        | value               | is     |
        | state               | queued |
        | last_completed_step | 1      |
        | decisions.length    | 4      |
      When I run "holdfast plan apply --yes latest"
      Then it ends with exit code 4
      When I run "holdfast plan execute latest --format json"
      Then it ends with exit code 0
      And the data has
        | value | is       |
        | state | complete |
      When I run "holdfast plan apply --yes latest"
      Then it ends with exit code 0
      And in "shop" this prints
        """
        $ ls src; cat version.txt
        app.py
        text.txt
        2
        """

    Scenario: It can be undone
      Given I remember the sandboxes as "the plan had left them"
      When I run "holdfast plan rollback --yes --only shop:src --only data:orders.csv latest {before step 2} --format json"
      Then it ends with exit code 0
      And I note the answer's "left_checkpoint_id" as {what was left}
      When I run "holdfast plan rollback --yes latest {what was left}"
      Then it ends with exit code 0
      And the sandboxes are exactly as "the plan had left them"

    @unchanged
    Scenario Outline: <what>
      When I run "holdfast plan rollback <options> latest {before step 2}"
      Then it ends with exit code <code>
      And it says "<words>"
      And nothing has changed

      Examples:
        | what                              | options                      | code | words                                  |
        | only looking                      | --dry-run --only shop:src    | 0    | Nothing was changed.                   |
        | a path that is nowhere            | --yes --only shop:sources    | 3    | README.md                              |
        | a path that leads out of it       | --yes --only ../data         | 2    | not a path inside of a resource        |
        | nobody to ask, and no --yes       | --only shop:src              | 2    | Add --yes                              |
        | nothing of it is different        | --yes --only shop:src/app.py | 0    | no file was different                  |

  Rule: A rollback that cannot be right is refused, and changes nothing

    Background:
      Given this plan has run
        """
        steps:
          - {name: first, run: echo 2 > version.txt}
          - {name: second, resource: data, run: echo 4 >> orders.csv}
        """

    @unchanged
    Scenario Outline: <what>
      When I run "<command>"
      Then it ends with exit code <code>
      And it says "<words>"
      And nothing has changed

      Examples:
        | what                                 | command                                              | code | words                      |
        | an unknown checkpoint                | holdfast plan rollback --yes latest cp_ZZZZZZZZ      | 3    | no checkpoint              |
        | nobody to ask, and no --yes          | holdfast plan rollback latest {start}                | 2    | Add --yes                  |

    @unchanged
    Scenario: The user says no
      When I run "holdfast plan rollback latest {start}" on a terminal and answer "n"
      Then it ends with exit code 4
      And it says
        """
        (before the first step): 2 files will be
        Roll back?
        [y/N]
        nothing was changed
        """
      And nothing has changed

    @unchanged
    Scenario Outline: A sandbox is missing: <command>
      Given the sandbox of "data" is lost
      When I run "holdfast plan <command>"
      Then it ends with exit code 6
      And it says
        """
        The sandbox of resource 'data' is missing
        `holdfast plan resume {plan}` re-creates it
        """
      And nothing has changed

      Examples:
        | command                                     |
        | rollback --dry-run latest {start}           |
        | rollback --yes latest {start}               |
        | rollback --yes --only data:. latest {start} |

    Scenario: A missing sandbox is made anew by resuming the plan, which can then be rolled back
      Given the sandbox of "data" is lost
      When I run "holdfast plan resume latest"
      Then it ends with exit code 0
      And it says "The sandbox of data was missing and has been re-created."
      When I run "holdfast plan rollback --yes latest {start}"
      Then it ends with exit code 0

    Scenario: The checkpoint belongs to another plan, the plan is being executed, or may not be rolled back
      Given I note {start} as {the other plan's start}
      And the plan
        """
        policy: {rollback_enabled: false}
        steps: [{run: echo 3 > version.txt && pause}]
        """
      When I run "holdfast plan execute plan.yaml" up to its pause
      And I run "holdfast plan rollback --yes latest {the other plan's start}"
      Then it ends with exit code 4
      And it says "belongs to plan"
      And nothing has changed
      When I run "holdfast plan rollback --yes latest {start}"
      Then it ends with exit code 5
      And it says "plan execute"
      And nothing has changed
      When it goes on to its end
      Then it ends with exit code 0
      When I run "holdfast plan rollback --yes latest {start}"
      Then it ends with exit code 4
      And it says "rollback_enabled: false"
      And nothing has changed

    Scenario: The user says yes, the plan runs again from there, and once it is applied it is too late
      When I run "holdfast plan rollback latest {start}" on a terminal and answer "y"
      Then it ends with exit code 0
      And in the sandbox of "shop" this prints
        """
        $ cat version.txt ../data/orders.csv
        1
        1;2;3
        """
      When I run "holdfast plan execute latest --format json"
      Then it ends with exit code 0
      And the data has
        | value          | is        |
        | state          | complete  |
        | steps[0].state | succeeded |
        | steps[1].state | succeeded |
      And in the sandbox of "shop" this prints
        """
        $ cat version.txt ../data/orders.csv
        2
        1;2;3
        4
        """
      When I run "holdfast plan apply --yes latest"
      Then it ends with exit code 0
      When I run "holdfast plan rollback --yes latest {start}"
      Then it ends with exit code 4
      And it says "is applied"
      And nothing has changed
