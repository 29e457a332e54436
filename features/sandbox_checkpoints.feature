Feature: Checkpoints
  While a plan runs, checkpoints are taken by themselves: at its start and end, around every write, at every decision,
  at every failure. Each is one moment of all sandboxes together, so that any of them can be gone back to.

  Scenario: Ignored files, modes, empty directories, links, nested repositories: everything is held
    Given in "data" I do
      """
      echo '*.log' > .gitignore; echo ignored > ignored.log
      ln orders.csv second-name; ln -s /nowhere dangling; mkfifo pipe; touch -d 2001-02-03 old.txt
      git init --quiet nested; echo inside > nested/file
      printf 'x' > 'odd name'; chmod 4755 'odd name'; mkdir closed; chmod 500 closed
      """
    And the plan
      """
      name: wreck everything
      resources: {data: {type: directory, path: data}}
      steps:
        - name: wreck everything
          run: |
            chmod 700 closed; rm -rf nested empty dangling pipe ignored.log closed second-name
            chmod 644 private.key 'odd name'; touch old.txt
            echo new > orders.csv; mkdir added; echo added > added/file; ln -s / latest2
            python3 -c "import socket; socket.socket(socket.AF_UNIX).bind('a-socket')"
            exit 1
      """
    When I run "holdfast plan execute plan.yaml --format json"
    Then it ends with exit code 1
    And but for "a-socket" the sandbox of "data" is exactly as my folder "data"
    When I run "holdfast checkpoint show {failure} --format json"
    Then the data has
      | value          | is       |
      | unheld.length  | 1        |
      | unheld[0].path | a-socket |

  Scenario: A decision that touches two of three resources is one moment of two checkpoints
    Given in "." I do
      """
      mkdir notes; echo note > notes/note.txt
      """
    And the plan
      """
      name: three places
      resources:
        shop: {type: git, path: shop}
        data: {type: directory, path: data}
        notes: {type: directory, path: notes}
      steps: [{name: change two, run: 'echo 2 > version.txt; echo more >> "$HOLDFAST_RESOURCE_NOTES/note.txt"'}]
      """
    When I run "holdfast plan execute plan.yaml"
    Then the checkpoints are
      | moments                    | step | resources         |
      | pre_execute                |      | shop, data, notes |
      | on_tool_write, on_decision | 1    | shop              |
      | on_tool_write_complete     | 1    | shop, notes       |
      | post_execute               |      | shop              |

  Rule: Every moment that matters is a checkpoint

    Background:
      Given this plan has run
        """
        steps:
          - name: choose a version
            tool: write_file
            args: {path: version.txt, content: "2\n"}
            decision: {type: strategy_choice, question: "Which version comes next?", chosen: "2"}
          - {name: change both, run: mkdir new && echo 4 >> "$HOLDFAST_RESOURCE_DATA/orders.csv" && rm README.md}
          - {name: only look, run: cat version.txt, writes: false}
          - {name: change nothing, resource: data, run: "true"}
        """

    @unchanged
    Scenario: A decision and its write are one moment, and so is a write to several resources
      Then the checkpoints are
        | moments                    | step | resources  |
        | pre_execute                |      | shop, data |
        | on_tool_write, on_decision | 1    | shop       |
        | on_tool_write_complete     | 1    | shop       |
        | on_tool_write, on_decision | 2    | shop       |
        | on_tool_write_complete     | 2    | shop, data |
        | on_decision                | 3    | shop       |
        | on_tool_write, on_decision | 4    | data       |
        | on_tool_write_complete     | 4    | data       |
        | post_execute               |      | shop       |

    @unchanged
    Scenario: A moment at which nothing changed has a record that adds no content
      Then the checkpoint {start} adds content
      And the checkpoint {after step 1} adds content
      And the checkpoint {after step 2} adds content
      But the checkpoint {before step 1} adds nothing
      And the checkpoint {before step 3} adds nothing
      And the checkpoint {after step 4} adds nothing
      And the checkpoint {end} adds nothing

    @unchanged
    Scenario: What a shell command changed is seen, in both sandboxes
      When I run "holdfast checkpoint show {after step 2} --format json"
      Then the data has
        | value             | is                   |
        | checkpoint_id     | {after step 2}       |
        | plan_id           | {plan}               |
        | decision_id       | {decision of step 2} |
        | step              | change both          |
        | source            | shell                |
        | phase             | execute              |
        | changes.length    | 3                    |
        | changes[0].file   | shop/README.md       |
        | changes[0].status | removed              |
        | changes[1].file   | shop/new             |
        | changes[1].status | added                |
        | changes[2].file   | data/orders.csv      |
        | changes[2].status | changed              |
      And nothing has changed
