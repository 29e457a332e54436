Feature: Decisions
  What was decided, where and why, is kept with the moment at which it was decided: by the plan, by a tool while it runs,
  by Holdfast when something fails, by a person who steps in. Each can be explained, and gone back to.

  Scenario: Every decision is recorded where it is made, with a checkpoint
    Given in "shop" I do
      """
      printf 'def choose(context):\n    context.checkpoint(label="before the choice")\n' > steps.py
      printf '    (context.root / "draft.txt").write_text("draft")\n' >> steps.py
      printf '    context.record_decision(type="implementation_choice", question="Which colour?", chosen="blue",\n' >> steps.py
      printf '        alternatives=["red"], rationale="it is calm", confidence=0.5)\n' >> steps.py
      printf '    (context.root / "colour.txt").write_text("blue")\n' >> steps.py
      """
    And the plan
      """
      validate: [test -e colour.txt]
      steps:
        - {name: look, run: cat version.txt, writes: false}
        - name: raise
          run: echo 2 > version.txt
          decision: {type: strategy_choice, question: "Which version?", chosen: "2", alternatives: ["1.1"], rationale: it changes}
        - {name: paint, tool: python, args: {callable: "steps:choose"}}
        - {name: divide, subplans: [{name: part, steps: [{run: echo part > part.txt}]}]}
        - name: divide again
          parallel: 2
          subplans: [{name: left, steps: [{run: echo 3 > version.txt}]}, {name: right, steps: [{run: echo 4 > version.txt}]}]
        - {name: try, run: test -e "$HOME/luck"}
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 5
    When I run "holdfast plan resume latest --resolved"
    Then it ends with exit code 1
    Given in "user" I do
      """
      touch luck
      """
    When I run "holdfast plan execute latest"
    Then it ends with exit code 0
    And the decisions are
      | type                   | step               | chosen                                                     | mark       |
      | prompt_definition      |                    | a test plan                                                |            |
      | tool_invocation        | look               | cat version.txt                                            |            |
      | strategy_choice        | raise              | 2                                                          |            |
      | tool_invocation        | paint              | python steps:choose                                        |            |
      | implementation_choice  | paint              | blue                                                       |            |
      | subplan_spawn          | divide             | part; one after another                                    |            |
      | subplan_parallel_spawn | divide again       | left, right; up to 2 at the same time, merged by three_way |            |
      | user_intervention      | divide again       | as resolved in the sandbox: version.txt                    |            |
      | tool_invocation        | try                | test -e "$HOME/luck"                                       | superseded |
      | error_recovery         | try                | rollback and stop                                          |            |
      | tool_invocation        | try                | test -e "$HOME/luck"                                       |            |
      | validation_response    | test -e colour.txt | yes                                                        |            |
    And each of them but the first has a checkpoint to go back to
    When I run "holdfast plan tree"
    Then it says
      """
      tool_invocation  How is this done: paint? → python steps:choose
      implementation_choice  Which colour? → blue
      subplan_parallel_spawn  How is this divided: divide again?
      user_intervention  How does right go together with the rest? → as resolved in the sandbox: version.txt
      error_recovery  try failed: what now? → rollback and stop
      validation_response  Does `test -e colour.txt` accept the result? → yes
      """
    When I note the decision for "blue" as {blue}
    And I run "holdfast plan explain {blue} --format json"
    Then the data has
      | value             | is                    |
      | type              | implementation_choice |
      | question          | Which colour?         |
      | alternatives      | ["red"]               |
      | rationale         | it is calm            |
      | confidence        | 0.5                   |
      | step              | paint                 |
      | changes.length    | 1                     |
      | changes[0].file   | shop/colour.txt       |
      | dependents.length | 7                     |
      | can_be_reverted   | true                  |
    When I run "holdfast plan rollback --yes latest 'before the choice'"
    Then it ends with exit code 0
    And in the sandbox of "shop" this prints
      """
      $ ls; cat version.txt
      README.md
      src
      steps.py
      version.txt
      2
      """

  Scenario: What a validation said is recorded, also when it said no
    Given the plan
      """
      validate: [test -e "$HOME/good", test -e version.txt]
      steps: [{name: write, run: echo 2 > version.txt}]
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    And the decisions are
      | type                | step                 | chosen               | mark |
      | prompt_definition   |                      | a test plan          |      |
      | tool_invocation     | write                | echo 2 > version.txt |      |
      | validation_response | test -e "$HOME/good" | no                   |      |
    And in the sandbox of "shop" this prints
      """
      $ cat version.txt
      2
      """
