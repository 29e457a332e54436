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
      shop: colour.txt
      data: paint.txt
      shop: result.txt
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
    When I run "holdfast plan correct --mode append --guidance 'one more' --with more.yaml {decision of step 1} --format json"
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
