Feature: Corrections
  A decision can be corrected: the plan goes back to just before it, it and what followed from it are superseded, and
  the plan goes on with the user's guidance, with other steps or with the same ones.

  Scenario: Undo a decision and go on with other steps
    Given the file "green.yaml"
      """
      steps:
        - name: choose green
          run: echo "green, as in '$HOLDFAST_GUIDANCE'" > colour.txt
        - {name: varnish, resource: data, run: echo varnish > varnish.txt}
      """
    And this plan has run
      """
      steps:
        - {name: keep this, run: echo kept > kept.txt}
        - name: choose blue
          run: echo blue > colour.txt; echo paint > "$HOLDFAST_RESOURCE_DATA/paint.txt"
          decision: {type: strategy_choice, question: "Which colour?", chosen: blue, alternatives: [green]}
        - {name: use it, run: cat colour.txt > result.txt}
      """
    When I run "holdfast plan correct --mode revert --guidance 'rather green' --with green.yaml --dry-run {decision of step 2}"
    Then it ends with exit code 0
    And it says
      """
      blue
      shop/colour.txt
      data/paint.txt
      shop/result.txt
      choose green
      varnish
      Nothing was changed.
      """
    And nothing has changed
    When I run "holdfast plan correct --mode revert --guidance 'rather green' --with green.yaml --yes {decision of step 2} --format json"
    Then it ends with exit code 0
    And the data has
      | value          | is           |
      | plan_id        | {plan}       |
      | state          | complete     |
      | attempt        | 2            |
      | steps.length   | 3            |
      | steps[0].name  | keep this    |
      | steps[1].name  | choose green |
      | steps[2].state | succeeded    |
    And in the sandbox of "shop" this prints
      """
      $ cat kept.txt colour.txt; ls . ../data
      kept
      green, as in 'rather green'
      .:
      README.md
      colour.txt
      kept.txt
      src
      version.txt

      ../data:
      empty
      latest
      orders.csv
      private.key
      varnish.txt
      """
    And my files are untouched
    And "plan status" has
      | value                      | is                |
      | guidance                   | rather green      |
      | decisions.length           | 5                 |
      | decisions[0].type          | prompt_definition |
      | decisions[2].type          | user_intervention |
      | decisions[2].chosen        | rather green      |
      | decisions[2].alternatives  | ["blue"]          |
      | decisions[2].is_correction | true              |
      | decisions[3].type          | tool_invocation   |

  Scenario: A wrong decision: look at it, try the correction, make it, compare, apply
    Given the file "steel.yaml"
      """
      steps:
        - {name: choose steel, run: echo steel > material.txt}
        - {name: price, run: echo 9 > price.txt}
      """
    And this plan has run
      """
      steps:
        - {name: measure, run: echo 10 > length.txt}
        - name: choose wood
          run: echo wood > material.txt
          decision:
            type: strategy_choice
            question: Which material?
            chosen: wood
            alternatives: [steel, glass]
            rationale: it is cheap
        - {name: price, run: echo 5 > price.txt}
        - {name: order it, run: echo ordered > order.txt, side_effects: true}
      """
    When I run "holdfast plan tree"
    Then it says
      """
      prompt_definition  What is to be done? → a test plan
      strategy_choice  Which material? → wood
      {decision of step 2}
      step 4 order it
      """
    When I run "holdfast plan explain {decision of step 2}"
    Then it ends with exit code 0
    And it says
      """
      question      Which material?
      alternatives  steel, glass
      rationale     it is cheap
      A  shop/material.txt  +1 -0
      echo 5 > price.txt
      """
    Given I note {decision of step 2} as {the decision}
    When I run "holdfast plan correct --dry-run --mode revert --guidance 'it must last' --with steel.yaml {the decision}"
    Then it ends with exit code 0
    And it says
      """
      shop/material.txt
      shop/order.txt
      not undone: step 4 (order it)
      choose steel
      Nothing was changed.
      """
    And nothing has changed
    When I run "holdfast plan correct --yes --mode revert --guidance 'it must last' --with steel.yaml {the decision} --format json"
    Then it ends with exit code 0
    And the data has
      | value                                            | is       |
      | attempt                                          | 2        |
      | state                                            | complete |
      | impact.decisions_after_cp                        | 3        |
      | impact.side_effects_not_undone.length            | 1        |
      | impact.side_effects_not_undone[0].step           | order it |
      | impact.side_effects_not_undone[0].step_index     | 3        |
    When I run "holdfast plan diff --attempt 1 2 latest --patch"
    Then it ends with exit code 0
    And it says
      """
      -wood
      +steel
      -5
      +9
      --- a/shop/order.txt
      """
    When I run "holdfast plan diff --attempt 1 3 latest"
    Then it ends with exit code 3
    And it says "There are results of these attempts: 1, 2."
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ cat length.txt material.txt price.txt; test -e order.txt || echo no order
      10
      steel
      9
      no order
      """

  Scenario: Whoever decided differently is kept in the tree
    Given this plan has run
      """
      steps: [{name: first, run: echo "$HOLDFAST_GUIDANCE" > said.txt}]
      """
    And I note {decision of step 1} as {the decision}
    When I run "holdfast plan correct --yes --mode revert --guidance 'say hello' {the decision}"
    Then it ends with exit code 0
    When I run "holdfast plan tree"
    Then it says "user_intervention (correction)"
    And it does not say "superseded"
    When I run "holdfast plan tree --all"
    Then it says "tool_invocation (superseded)"
    When I run "holdfast plan explain {the decision}"
    Then it says "{the decision}  superseded"

  Scenario: A correction that would undo an applied subplan is refused whole
    Given this plan has run
      """
      steps:
        - {name: first, run: echo first > first.txt}
        - name: parts
          subplans: [{name: part, steps: [{run: echo part > part.txt}]}]
      """
    When I run "holdfast plan tree --format json"
    And I note the answer's "decisions[0].children[1].subplans[0].plan_id" as {the part}
    And I run "holdfast plan apply --yes {the part}"
    Then it ends with exit code 0
    When I run "holdfast plan correct --yes --mode revert --guidance x {decision of step 1}"
    Then it ends with exit code 4
    And it says "would undo subplans whose results are already in the real files: part"
    And nothing has changed

  Scenario: After a failure the same steps are tried again, and see the guidance
    Given the plan
      """
      steps:
        - {name: ask, run: echo "$HOLDFAST_GUIDANCE" > answer.txt && grep -q please answer.txt}
      """
    When I run "holdfast plan execute plan.yaml --format json"
    Then it ends with exit code 1
    Given I note the answer's "failed_step.decision_id" as {the decision}
    When I run "holdfast plan correct --yes --mode revert --guidance 'say please' {the decision} --format json"
    Then it ends with exit code 0
    And the data has
      | value   | is       |
      | state   | complete |
      | attempt | 2        |
    And in the sandbox of "shop" this prints
      """
      $ cat answer.txt
      say please
      """

  Scenario: A verdict is corrected, and then the correction
    Given the plan
      """
      steps: [{name: first, run: echo first > first.txt}]
      validate: [test -e second.txt]
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    When I run "holdfast plan status --format json"
    And I note the answer's "decisions[2].decision_id" as {the verdict}
    And I run "holdfast plan correct --yes --mode revert --guidance 'look again' {the verdict}"
    Then it ends with exit code 1
    And "plan status" has
      | value               | is                  |
      | decisions.length    | 4                   |
      | decisions[2].chosen | look again          |
      | decisions[3].type   | validation_response |
    When I run "holdfast plan status --format json"
    And I note the answer's "decisions[2].decision_id" as {the correction}
    Given the file "second.yaml"
      """
      steps: [{name: second, run: echo second > second.txt}]
      """
    When I run "holdfast plan correct --yes --mode revert --guidance 'write it' --with second.yaml {the correction}"
    Then it ends with exit code 0
    And "plan status" has
      | value               | is       |
      | decisions.length    | 5        |
      | decisions[2].chosen | write it |
      | decisions[4].chosen | yes      |

  Scenario: Add work at the end and undo nothing
    Given this plan has run
      """
      steps: [{name: first, run: echo first >> log.txt}]
      """
    And the file "more.yaml"
      """
      steps: [{name: second, run: 'echo "second: $HOLDFAST_GUIDANCE" >> log.txt'}]
      """
    When I run "holdfast plan correct --mode append --guidance 'one more' {decision of step 1}"
    Then it ends with exit code 2
    And it says "--with FILE"
    And nothing has changed
    When I run "holdfast plan correct --mode append --guidance 'one more' --with more.yaml {decision of step 1}"
    Then it ends with exit code 2
    And it says "Add --yes"
    And nothing has changed
    When I run "holdfast plan correct --mode append --guidance 'one more' --with more.yaml {decision of step 1}" on a terminal and answer "n"
    Then it ends with exit code 4
    And it says "Undo nothing, and add 1 step at the end: second."
    And nothing has changed
    When I run "holdfast plan correct --yes --mode append --guidance 'one more' --with more.yaml {decision of step 1} --format json"
    Then it ends with exit code 0
    And the data has
      | value               | is       |
      | state               | complete |
      | attempt             | 2        |
      | last_completed_step | 1        |
    And in the sandbox of "shop" this prints
      """
      $ cat log.txt
      first
      second: one more
      """
