@landlock
Feature: Confinement
  A step can write into the sandboxes of its plan, into its own temporary directory and where the user allowed it, and
  nowhere else, whatever it starts and whichever way it takes. Otherwise no rollback could promise anything.

  Scenario Outline: A write <where> is refused, and said with the way to allow it
    Given in "user" I do
      """
      echo mine > precious.txt
      """
    And the plan
      """
      steps:
        - name: reach out
          run: |
            <command>
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    And it says
      """
      Step 1 (reach out) failed
      ermission denied
      <words>
      """
    And my files are untouched
    And in "user" this prints
      """
      $ ls; cat precious.txt; ls /etc/holdfast-was-here 2>/dev/null || echo nothing elsewhere
      precious.txt
      mine
      nothing elsewhere
      """

    Examples:
      | where                             | command                                                | words                                                                                                                                                  |
      | to my home                        | echo x > "$HOME/precious.txt"                          | writing {project}/user/precious.txt was refused: it lies outside of the plan's sandboxes                                                               |
      | of a new file in my home          | mkdir "$HOME/new"                                      | to allow it, `holdfast config set sandbox.allow-write {project}/user`                                                                                  |
      | to /etc                           | echo x > /etc/holdfast-was-here                        | /etc/holdfast-was-here                                                                                                                                 |
      | through a symlink                 | ln -s "$HOME/precious.txt" door; echo x > door         | writing {project}/user/precious.txt was refused                                                                                                        |
      | through a child in the background | setsid sh -c 'echo x > "$HOME/precious.txt"' & wait $! | writing {project}/user/precious.txt was refused                                                                                                        |
      | to the records of Holdfast        | echo x >> "$HOME/../home/holdfast.db"                  | it belongs to Holdfast                                                                                                                                 |

  Scenario: A write to the path of my repository goes to its copy
    Given the plan
      """
      steps:
        - name: at the path of my files
          run: |
            printf "[a]\n\tb = c\n" >> "$HOME/../shop/.git/config"
            git --git-dir="$HOME/../shop/.git" config user.name x
            echo 2 > "$HOME/../shop/version.txt"
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 0
    And my files are untouched
    And in the sandbox of "shop" this prints
      """
      $ cat version.txt; git config user.name
      2
      x
      """

  Scenario: What I allow can be written, and the status names it as outside of rollback
    Given in "user" I do
      """
      mkdir cache other
      """
    And the plan
      """
      steps: [{name: fill the cache, run: echo kept > "$HOME/cache/file" && echo 2 > version.txt}]
      """
    When I run "holdfast config set sandbox.allow-write ~/cache"
    And I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 0
    When I run "holdfast plan status"
    Then it says "on; outside of rollback: {project}/user/cache"
    When I run "holdfast plan rollback --yes latest {start}"
    Then it ends with exit code 0
    And in the sandbox of "shop" this prints
      """
      $ cat version.txt "$HOME/cache/file"
      1
      kept
      """
    When I run "holdfast plan execute latest --config sandbox.allow-write=~/other"
    Then it ends with exit code 1
    And it says "writing {project}/user/cache/file was refused"

  Scenario: A step sees of my environment what I list, and no secret
    Given the plan
      """
      steps: [{run: 'echo "the key is $MY_KEY"; test -n "$HOME"'}]
      """
    When I run "holdfast plan execute plan.yaml --format json" with MY_KEY=0815
    Then it ends with exit code 0
    And the data has
      | value           | is              |
      | steps[0].output | "the key is \n" |
    When I run "holdfast plan execute plan.yaml --format json --config sandbox.pass-env=PATH,HOME,MY_*" with MY_KEY=0815
    Then the data has
      | value           | is                  |
      | steps[0].output | "the key is 0815\n" |

  @landlock_scopes
  Scenario: A step cannot signal my other processes
    Given the plan
      """
      steps: [{name: look around, run: 'kill -0 "$(cat "$HOME/pid")"'}]
      """
    And in "user" I do
      """
      sleep 60 > /dev/null 2>&1 & echo $! > pid
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    And it says "not permitted"
    And in "user" this prints
      """
      $ kill "$(cat pid)" && echo still there
      still there
      """
