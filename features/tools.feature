Feature: Tools
  A step calls a tool on a resource. The file tools change exactly what they are told to, inside the sandbox and
  nowhere else; the shell and Python run in it, and know which plan they work for.

  Scenario: Every built-in tool at work
    Given in "shop" I do
      """
      mkdir old; touch old/a old/b
      printf 'def choose(context, name):\n    text = (context.root / "version.txt").read_text()\n' > steps.py
      printf '    context.checkpoint(label="before the choice")\n    (context.root / "chosen.txt").write_text(name + text)\n' >> steps.py
      printf '    context.record_decision(type="implementation_choice", question="Which?", chosen=name)\n' >> steps.py
      """
    And the plan
      """
      steps:
        - {tool: write_file, args: {path: deep/er/new.txt, content: "new\n", mode: "0640"}}
        - {tool: edit_file, args: {path: src/app.py, find: hello, replace: world}}
        - {tool: delete_file, args: {path: old, recursive: true}}
        - tool: apply_patch
          args:
            patch: |
              --- a/version.txt
              +++ b/version.txt
              @@ -1 +1,2 @@
              -1
              +2
              +patched
        - tool: shell
          resource: data
          args: {command: 'echo "$HOLDFAST_PLAN_ID $HOLDFAST_STEP"; test "$PWD" = "$HOLDFAST_RESOURCE_DATA" && cat "$HOLDFAST_RESOURCE_SHOP/version.txt"'}
        - {tool: python, args: {callable: "steps:choose", kwargs: {name: "blue "}}}
      """
    When I run "holdfast plan execute plan.yaml --format json"
    Then it ends with exit code 0
    And the data has
      | value           | is                         |
      | steps[4].output | "{plan} 4\n2\npatched\n"   |
    And in the sandbox of "shop" this prints
      """
      $ cat deep/er/new.txt src/app.py version.txt chosen.txt; stat -c %a deep/er/new.txt; test ! -e old
      new
      print('world')
      2
      patched
      blue 2
      patched
      640
      """
    And "plan status" has
      | value               | is                    |
      | decisions.length    | 8                     |
      | decisions[7].type   | implementation_choice |
      | decisions[7].chosen | "blue "               |
    When I run "holdfast plan rollback --yes latest 'before the choice' --format json"
    Then it ends with exit code 0
    And the data has
      | value                            | is                |
      | rollback_summary.label           | before the choice |
      | rollback_summary.files_reverted  | 1                 |
      | changes_reverted[0].file         | shop/chosen.txt   |
      | changes_reverted[0].action       | removed           |

  Scenario Outline: A file tool cannot reach outside: <tool> by <way>
    Given in "." I do
      """
      ln -s ../data shop/door; echo 'outside' > target.txt
      """
    And the plan
      """
      policy: {on_failure: keep}
      steps: [{name: reach outside, tool: <tool>, args: {<args>}}]
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    And it says "reach outside"
    And it says "<words>"
    And my files are untouched
    And in the sandbox of "data" this prints
      """
      $ cat orders.csv private.key; ls ..
      1;2;3
      secret
      data
      shop
      """

    Examples:
      | tool        | way              | args                                                        | words            |
      | write_file  | a symlink        | path: door/orders.csv, content: reached                     | symlink          |
      | edit_file   | an absolute path | path: /etc/hostname, find: a, replace: b                    | absolute path    |
      | delete_file | ..               | path: ../data, recursive: true                              | ..               |
      | apply_patch | ..               | patch: "--- a/../data/orders.csv\n+++ b/../data/orders.csv\n@@ -1 +1 @@\n-1;2;3\n+x\n" | data/orders.csv |
