Feature: Plans
  A plan is a file: what it works on, and its steps. Creating it runs nothing; executing it runs it in private
  sandboxes. Everything about it is stored, so that any later command, in any process, knows where it stands.

  Scenario: A plan is created first and executed later, by another process
    Given the plan
      """
      steps:
        - {name: raise the version, tool: write_file, args: {path: version.txt, content: "2\n"}}
        - {name: note it, resource: data, run: echo noted > note.txt && echo done}
      """
    When I run "holdfast plan create plan.yaml --format json"
    Then it ends with exit code 0
    And the data has
      | value               | is         |
      | plan_id             | an id      |
      | phase               | strategize |
      | state               | queued     |
      | attempt             | 1          |
      | last_completed_step | -1         |
      | last_checkpoint_id  | null       |
      | steps.length        | 2          |
    And there is no sandbox
    Given I note the answer's "plan_id" as {plan}
    When I run "holdfast plan execute {plan} --format json" in "data"
    Then it ends with exit code 0
    When I run "holdfast plan status --format json"
    Then the data has
      | value                     | is              |
      | plan_id                   | {plan}          |
      | phase                     | execute         |
      | state                     | complete        |
      | last_completed_step       | 1               |
      | last_checkpoint_id        | an id           |
      | resources[0].name         | shop            |
      | resources[0].type         | git             |
      | resources[0].strategy     | git_worktree    |
      | resources[1].name         | data            |
      | resources[1].type         | directory       |
      | resources[1].strategy     | filesystem_copy |
      | steps[0].state            | succeeded       |
      | steps[1].state            | succeeded       |
      | steps[1].output           | "done\n"        |
    And in the sandbox of "data" this prints
      """
      $ cat note.txt ../shop/version.txt
      noted
      2
      """
    And my files are untouched

  Scenario: Plans are listed newest first, and named by a beginning of their id or as the latest
    Given the plan
      """
      steps: [{run: "true"}]
      """
    When I run "holdfast plan create plan.yaml --format json"
    And I note the answer's "plan_id" as {first}
    And I run "holdfast plan create plan.yaml --format json"
    And I note the answer's "plan_id" as {second}
    And I run "holdfast plan list --format json"
    Then the data has
      | value            | is       |
      | plans.length     | 2        |
      | plans[0].plan_id | {second} |
      | plans[1].plan_id | {first}  |
    When I run "holdfast plan status {the beginning of first}"
    Then it says "{first}"
    When I run "holdfast plan status 0"
    Then it ends with exit code 3
    And it says "{first}"
    And it says "{second}"
    When I run "holdfast plan list" in "shop"
    Then it ends with exit code 0
    And it does not say "{first}"

  Scenario: Every mistake in a plan file is named with its line and what was expected there
    Given the file "plan.yaml"
      """
      name: full of mistakes
      resources:
        shop: {type: git, path: shop}
        gone: {type: directory, path: not/there}
      polices: {}
      steps:
        - {name: first, run: [1, 2]}
        - {name: second, tool: write_fil, args: {path: x}}
        - {name: third, tool: write_file, args: {path: x}}
        - {name: fourth, run: "true", resource: shed}
        - {name: fifth, run: "true", retries: many}
      """
    When I run "holdfast plan create plan.yaml"
    Then it ends with exit code 2
    And it says
      """
      plan.yaml:5:1: unknown key "polices"
      did you mean "policy"?
      plan.yaml:7:
      plan.yaml:8:
      write_file
      plan.yaml:9:
      plan.yaml:10:
      there is no resource "shed"
      plan.yaml:11:
      """
    And there is no sandbox

  Scenario: A plan file that is not there is named
    When I run "holdfast plan execute no-such-plan.yaml --format json"
    Then it ends with exit code 2
    And the data has
      | value      | is            |
      | error.type | PlanFileError |
    And it says "no-such-plan.yaml"

  Scenario: Editors get the schema of plan files
    When I run "holdfast plan schema --format json"
    Then it ends with exit code 0
    And the data has
      | value                                | is                                           |
      | schema.$schema                       | https://json-schema.org/draft/2020-12/schema |
      | schema.required                      | ["name", "resources", "steps"]               |
      | schema.properties.steps.type         | array                                        |
      | schema.additionalProperties          | false                                        |
