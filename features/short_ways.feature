Feature: Short ways
  What is typed every day is short, a slip of the finger is answered with the right command, and plans that are no
  longer needed go all at once.

  Scenario: The commands of a plan work without the word plan
    Given this plan has run
      """
      steps:
        - {name: raise the version, tool: write_file, args: {path: version.txt, content: "2\n"}}
      """
    When I run "holdfast status --format json"
    Then the data has
      | value | is       |
      | state | complete |
    When I run "holdfast diff"
    Then it says "version.txt"
    When I run "holdfast apply --yes latest"
    And I run "holdfast list"
    Then it says "applied"
    When I run "holdfast undo --yes latest"
    Then it ends with exit code 0
    And I run "holdfast plan undo --dry-run latest"
    Then it ends with exit code 4

  Scenario Outline: A wrong command names the right one, in whatever group it is
    When I run "holdfast <typed>"
    Then it ends with exit code 2
    And it says "Did you mean `holdfast <meant>`?"

    Examples:
      | typed               | meant            |
      | plna status         | plan status      |
      | plan statsu         | plan status      |
      | chekpoint           | checkpoint       |
      | checkpoint rollback | plan rollback    |
      | plan run            | run              |
      | show                | checkpoint show  |

  Scenario: Applied plans are deleted when I say so, and no others
    Given this plan has run
      """
      steps:
        - {name: raise the version, tool: write_file, args: {path: version.txt, content: "2\n"}}
      """
    When I run "holdfast prune --yes"
    Then it ends with exit code 2
    And it says "Say which plans are to be deleted"
    When I run "holdfast prune --applied --yes"
    Then it says "There is no such plan. Nothing was changed."
    When I run "holdfast apply --yes latest"
    And I run "holdfast prune --applied --older-than 7d --yes"
    Then it says "There is no such plan. Nothing was changed."
    When I run "holdfast prune --applied --dry-run"
    Then it says "would be deleted. Nothing was changed."
    When I run "holdfast prune --applied --yes"
    Then it says "Deleted 1 plan with"
    When I run "holdfast status"
    Then it ends with exit code 3

  Scenario: Several plans are deleted together, or none if one of them does not exist
    Given the plan
      """
      steps: [{run: "true"}]
      """
    When I run "holdfast create plan.yaml --format json"
    And I note the answer's "plan_id" as {first}
    And I run "holdfast create plan.yaml --format json"
    And I note the answer's "plan_id" as {second}
    And I run "holdfast delete --yes {first} nonsense"
    Then it ends with exit code 3
    When I run "holdfast status {first}"
    Then it ends with exit code 0
    When I run "holdfast delete --yes {first} {second}"
    Then it says "Deleted 2 plans"
    When I run "holdfast list"
    Then it says "There are no plans"
