Feature: The log
  The history of a plan only grows. Going back starts a branch; what was left stays beside it, and everybody can see
  which way led to where the plan is now.

  Scenario: A failure, a rollback and another way are drawn as they happened
    Given the plan
      """
      steps:
        - {name: one, run: echo 1 > one.txt}
        - {name: two, run: echo 2 > two.txt; test -e "$HOME/luck"}
      """
    When I run "holdfast log"
    Then it ends with exit code 3
    When I run "holdfast plan execute plan.yaml"
    And I run "holdfast plan rollback --yes latest {before step 1}"
    And I run "holdfast checkpoint create latest --label lunch"
    Then it ends with exit code 0
    Given in "user" I do
      """
      touch luck
      """
    When I run "holdfast plan execute latest"
    Then it ends with exit code 0
    When I run "holdfast log"
    Then the log is
      """
      @  after the last step
      ○  after step 2: two
      ○  before step 2: two  → echo 2 > two.txt; test -e "$HOME/luck"
      ○  after step 1: one
      ○  before step 1: one  → echo 1 > one.txt
      ◆  "lunch" asked for by a person
      ○  back at step 1: one
      │ ○  back at step 2: two
      │ │ ✗  failed: step 2: two
      │ ├─╯
      │ ○  before step 2: two  → echo 2 > two.txt; test -e "$HOME/luck"
      │ ○  after step 1: one
      ├─╯
      ○  before step 1: one  → echo 1 > one.txt
      ○  before the first step
      """
    When I run "holdfast plan log --limit 1 --format json"
    Then the data has
      | value               | is               |
      | plan_id             | {plan}           |
      | moments.length      | 1                |
      | moments[0].is_now   | true             |
      | moments[0].triggers | ["post_execute"] |
