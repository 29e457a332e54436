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
        2 files will be restored or removed
        Go back? [y/N]
        nothing was changed
        """
      And nothing has changed

    @unchanged
    Scenario: A sandbox is missing
      Given the sandbox of "data" is lost
      When I run "holdfast plan rollback --yes latest {start}"
      Then it ends with exit code 6
      And it says
        """
        The sandbox of resource 'data' is missing
        holdfast plan execute {plan}
        """
      And nothing has changed

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
