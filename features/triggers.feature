Feature: Triggers
  When a checkpoint is taken by itself is a matter of settings: seven moments can be named, for everything or for one
  plan, and each means exactly one place. The start and the end of a plan are kept whatever is named.

  Scenario Outline: <trigger> fires <when>
    Given the plan
      """
      name: every kind of moment
      resources: {shop: {type: git, path: shop}}
      policy: {auto_create_on: [<name>], on_failure: keep}
      steps:
        - {name: look, run: cat version.txt, writes: false}
        - {name: write, run: echo 2 > version.txt}
        - name: divide
          subplans:
            - {name: left, steps: [{run: echo left > left.txt}]}
            - {name: right, steps: [{run: echo right > right.txt}]}
        - {name: fail, run: echo 3 > version.txt; exit 1}
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    And <trigger> alone has taken checkpoints, at "<steps>"

    Examples:
      | trigger                | name                | when                             | steps                           |
      | before_step            | before_step         | before each step                 | look, write, divide, fail       |
      | on_tool_write          | before_tool_execute | before a tool that writes        | write, fail                     |
      | on_tool_write_complete | after_tool_execute  | after it                         | write                           |
      | on_decision            | on_decision         | when a decision is recorded      | look, write, divide, fail, fail |
      | on_subplan_spawn       | on_subplan_spawn    | before a subplan's first attempt | divide, divide                  |
      | after_subplan          | after_subplan       | after a subplan ended            | divide, divide                  |
      | on_error               | on_error            | when it fails                    | fail                            |

  Scenario Outline: <trigger> fires also for <what> that failed
    Given the plan
      """
      name: what fails
      resources: {shop: {type: git, path: shop}}
      policy: {auto_create_on: [<trigger>], on_failure: keep}
      validate: [echo looked > looked.txt; exit 1]
      steps: [<step>]
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    And it says "the files when it failed"
    And <trigger> alone has taken checkpoints, at "<at>"

    Examples:
      | trigger       | what         | at      | step                                                                  |
      | on_error      | a validation | no step | {name: write, run: echo 2 > version.txt}                              |
      | after_subplan | a subplan    | divide  | {name: divide, subplans: [{name: left, steps: [{run: exit 1}]}]}      |

  Scenario: Triggers of one moment make one checkpoint that names them all, and one that finds nothing new adds nothing
    Given the plan
      """
      policy: {auto_create_on: [on_error, on_tool_write, after_tool_execute, before_step, on_decision]}
      steps:
        - {name: look, resource: data, run: cat orders.csv, writes: false}
        - {name: write nothing, run: "true"}
        - {name: fail, run: 'echo 2 > version.txt; echo 4 >> ../data/orders.csv; exit 1'}
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    And the checkpoints are
      | moments                                 | step | resources  |
      | pre_execute                             |      | shop, data |
      | before_step, on_decision                | 1    | data       |
      | before_step, on_tool_write, on_decision | 2    | shop       |
      | on_tool_write_complete                  | 2    | shop       |
      | before_step, on_tool_write, on_decision | 3    | shop       |
      | on_error                                | 3    | shop, data |
      | rollback                                | 3    | shop, data |
    And the checkpoint {before step 1} adds nothing
    And the checkpoint {after step 2} adds nothing
    But the checkpoint {failure} adds content
    And in the sandbox of "shop" this prints
      """
      $ cat version.txt ../data/orders.csv
      1
      1;2;3
      """
    When I run "holdfast checkpoint show {failure} --format json"
    Then the data has
      | value           | is               |
      | changes.length  | 2                |
      | changes[0].file | shop/version.txt |
      | changes[1].file | data/orders.csv  |

  Scenario: An empty list turns automatic checkpoints off, and the user is told
    Given the plan
      """
      steps: [{run: echo 2 > version.txt}]
      """
    When I run "holdfast plan execute plan.yaml --config sandbox.checkpoint.auto-create-on=[]"
    Then it ends with exit code 0
    And the checkpoints are
      | moments      | step | resources  |
      | pre_execute  |      | shop, data |
      | post_execute |      | shop       |
    When I run "holdfast plan status"
    Then it says "Automatic checkpoints are turned off for this plan"

  Scenario: An unknown trigger is refused wherever it is named, with the list of those there are
    Given the plan
      """
      policy: {auto_create_on: [on_tool_wrte]}
      steps: [{run: "true"}]
      """
    When I run "holdfast plan create plan.yaml"
    Then it ends with exit code 2
    And it says
      """
      plan.yaml:5:
      unknown trigger "on_tool_wrte"
      before_step, on_tool_write, on_tool_write_complete, on_decision, on_subplan_spawn, after_subplan, on_error
      """
    When I run "holdfast config set sandbox.checkpoint.auto-create-on on_decision,on_tool_wrte"
    Then it ends with exit code 9
    And it says
      """
      did you mean "on_tool_write"
      before_step, on_tool_write, on_tool_write_complete, on_decision, on_subplan_spawn, after_subplan, on_error
      """
    And in "home" this prints
      """
      $ grep -rl wrte . || echo nothing was set
      nothing was set
      """
    When I run "holdfast plan list" with HOLDFAST_SANDBOX_CHECKPOINT_AUTO_CREATE_ON=on_tool_wrte
    Then it ends with exit code 9
    And it says
      """
      HOLDFAST_SANDBOX_CHECKPOINT_AUTO_CREATE_ON
      before_step, on_tool_write, on_tool_write_complete, on_decision, on_subplan_spawn, after_subplan, on_error
      """

  Scenario: A plan takes the triggers over from the user's settings, or has its own
    Given the plan
      """
      steps: [{run: "true"}]
      """
    When I run "holdfast config set sandbox.checkpoint.auto-create-on before_tool_execute,on_error"
    Then it ends with exit code 0
    When I run "holdfast plan create plan.yaml"
    Then "plan status" has
      | value                 | is                            |
      | policy.auto_create_on | ["on_tool_write", "on_error"] |
    Given the plan
      """
      policy: {auto_create_on: []}
      steps: [{run: "true"}]
      """
    When I run "holdfast plan create plan.yaml" with HOLDFAST_SANDBOX_CHECKPOINT_AUTO_CREATE_ON=before_step
    Then it says "Automatic checkpoints are turned off for this plan"
    And "plan status" has
      | value                 | is |
      | policy.auto_create_on | [] |
