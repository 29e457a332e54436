Feature: Crashes
  Whatever kills the command that runs a plan, the next one goes on: the step that was cut short runs again from a clean
  sandbox, what was done is not done twice, and nothing that the dead step had started is still at work.

  Scenario Outline: <victim> is killed in the middle of a step
    Given the plan
      """
      steps:
        - {name: before, run: echo before >> log.txt}
        - name: cut short
          run: |
            test ! -e half.txt && echo half > half.txt && rm README.md && echo cut >> log.txt
            echo "$HOLDFAST_STEP" >> "$HOLDFAST_RESOURCE_DATA/steps.txt"
            if [ ! -e "$HOME/go" ]; then
              while sleep 0.05; do echo scribble >> scribble.txt; done & setsid sleep 1001 &
              pause
            fi
        - {name: after, run: echo after >> log.txt}
      """
    When I run "holdfast plan execute plan.yaml" up to its pause
    Then the step has processes running
    When <victim> is killed
    Then the killed command is gone
    When I run "holdfast plan <command>"
    Then it ends with exit code 0
    And it says "<words>"
    When I run "holdfast plan execute latest --format json"
    Then it ends with exit code 0
    And the data has
      | value               | is       |
      | state               | complete |
      | error               | null     |
      | last_completed_step | 2        |
    And no process of the step is left
    And in the sandbox of "shop" this prints
      """
      $ cat log.txt ../data/steps.txt; ls
      before
      cut
      after
      1
      half.txt
      log.txt
      src
      version.txt
      """
    And my files are untouched

    Examples:
      | victim                  | command                              | words                                               |
      | the process             | status                               | its process is dead; `plan resume` continues safely |
      | its whole process group | rollback --yes latest {after step 1} | execute / queued, at step 2, cut short              |

  Scenario: A rollback from a step that was cut short, and the undo of the rollback
    Given steps may write to "~/outbox"
    And the plan
      """
      steps:
        - {name: write, run: echo letter > letter.txt}
        - {name: send, run: echo sent >> ~/outbox/log; echo half > half.txt; pause, side_effects: true}
      """
    When I run "holdfast plan execute plan.yaml" up to its pause
    And the process is killed
    And I run "holdfast plan rollback --yes latest {before step 1} --format json"
    Then it ends with exit code 0
    Given I note the answer's "left_checkpoint_id" as {what was left}
    When I run "holdfast plan rollback --yes latest {what was left}"
    Then it ends with exit code 0
    When I run "holdfast plan resume latest"
    Then it ends with exit code 4
    And it says "Step 2 (send) was interrupted"
    When I run "holdfast plan resume --skip latest --format json"
    Then it ends with exit code 0
    And in the sandbox of "shop" this prints
      """
      $ cat letter.txt half.txt
      letter
      half
      """
    And in "user" this prints
      """
      $ cat outbox/log
      sent
      """
