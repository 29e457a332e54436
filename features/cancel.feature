Feature: Cancelling
  A plan that runs can be stopped, from where it was started or from anywhere else. What it did is kept, with all its
  checkpoints, and it can go on later as if nothing had been.

  Background:
    Given the plan
      """
      steps:
        - {name: first, run: echo first >> log.txt}
        - name: second
          run: test ! -e half.txt && echo half > half.txt && (setsid sleep 1001 & trap '' TERM INT; pause) && echo second >> log.txt
        - {name: third, run: echo third >> log.txt}
      """

  Scenario: Another process cancels it, and it can be resumed
    When I run "holdfast plan execute plan.yaml" up to its pause
    And I run "holdfast plan cancel latest --format json"
    Then it ends with exit code 0
    And the data has
      | value   | is     |
      | plan_id | {plan} |
    When it has ended as well
    Then it ends with exit code 130
    And it says "holdfast plan execute {plan}"
    And no process of the step is left
    And "plan status" has
      | value               | is          |
      | state               | cancelled   |
      | last_completed_step | 0           |
      | steps[1].state      | interrupted |
      | holder              | null        |
    And the checkpoints are
      | moments                    | step | resources  |
      | pre_execute                |      | shop, data |
      | on_tool_write, on_decision | 1    | shop       |
      | on_tool_write_complete     | 1    | shop       |
      | on_tool_write, on_decision | 2    | shop       |
    When I run "holdfast plan resume --dry-run latest --format json"
    Then the data has
      | value | is     |
      | step  | second |
    And nothing has changed
    When I run "holdfast plan resume latest"
    Then it ends with exit code 0
    And in the sandbox of "shop" this prints
      """
      $ cat log.txt half.txt
      first
      second
      third
      half
      """
    And my files are untouched

  Scenario Outline: <way> loses nothing
    When I run "holdfast plan execute plan.yaml" up to its pause
    And it is interrupted with <way>
    Then it ends with exit code 130
    And no process of the step is left
    And "plan status" has
      | value               | is          |
      | state               | <state>     |
      | interrupted         | <as killed> |
      | last_completed_step | 0           |
    When I run "holdfast plan resume latest"
    Then it ends with exit code 0
    And in the sandbox of "shop" this prints
      """
      $ cat log.txt half.txt
      first
      second
      third
      half
      """

    Examples:
      | way          | state      | as killed |
      | Ctrl-C       | cancelled  | false     |
      | Ctrl-C twice | processing | true      |

  Scenario: What is not running is cancelled as well
    When I run "holdfast plan create plan.yaml"
    And I run "holdfast plan cancel latest"
    Then it ends with exit code 0
    And "plan status" has
      | value | is        |
      | state | cancelled |
    And there is no sandbox
