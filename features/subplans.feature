Feature: Subplans
  A step can be divided into plans of their own, one after another or several at a time. Each works in a copy of what is
  there at that moment; their results are brought together, and where they disagree nobody's work is lost.

  Scenario: One after another each sees what those before it made, to any depth and in all resources
    Given the plan
      """
      steps:
        - name: divide
          subplans:
            - {name: first, steps: [{run: echo 1 > one.txt}]}
            - name: second
              steps:
                - name: divide again
                  subplans:
                    - {name: deep, steps: [{run: cat one.txt > two.txt; echo 4 >> ../data/orders.csv}]}
                    - {name: deeper, steps: [{run: cat two.txt ../data/orders.csv > three.txt}]}
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 0
    And in the sandbox of "shop" this prints
      """
      $ cat two.txt three.txt; ls ../..
      1
      1
      1;2;3
      4
      {plan}
      """
    And my files are untouched
    When I run "holdfast plan tree"
    Then it says
      """
      subplan_spawn  How is this divided: divide? → first, second; one after another
      second, complete
      subplan_spawn  How is this divided: divide again? → deep, deeper; one after another
      deeper, complete
      """

  Scenario: Ten at a time that touch different parts of one file merge, and can be applied
    Given in "shop" I do
      """
      seq 100 > lines.txt; git add .; git commit --quiet --message lines
      """
    And the plan
      """
      name: ten at once
      resources: {shop: {type: git, path: shop}}
      steps:
        - name: ten at once
          parallel: 10
          subplans:
            - {name: s0, steps: [{run: sed -i 's/^10$/ten/' lines.txt}]}
            - {name: s1, steps: [{run: sed -i 's/^20$/twenty/' lines.txt}]}
            - {name: s2, steps: [{run: sed -i 's/^30$/thirty/' lines.txt}]}
            - {name: s3, steps: [{run: sed -i 's/^40$/forty/' lines.txt}]}
            - {name: s4, steps: [{run: sed -i 's/^50$/fifty/' lines.txt}]}
            - {name: s5, steps: [{run: sed -i 's/^60$/sixty/' lines.txt}]}
            - {name: s6, steps: [{run: sed -i 's/^70$/seventy/' lines.txt}]}
            - {name: s7, steps: [{run: sed -i 's/^80$/eighty/' lines.txt}]}
            - {name: s8, steps: [{run: sed -i 's/^90$/ninety/' lines.txt}]}
            - {name: s9, steps: [{run: sed -i 's/^100$/hundred/' lines.txt}]}
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 0
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ grep -c . lines.txt; grep [a-z] lines.txt | tr '\n' ' '; git log -1 --format=%s
      100
      ten twenty thirty forty fifty sixty seventy eighty ninety hundred ten at once
      """

  Scenario: One that fails keeps those that have not started from starting, and the step can run again
    Given the plan
      """
      steps:
        - name: divide
          subplans:
            - {name: good, steps: [{run: echo good > good.txt}]}
            - {name: bad, steps: [{run: echo bad > bad.txt}, {run: test -e "$HOME/luck"}]}
            - {name: later, steps: [{run: echo later > later.txt}]}
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 1
    And it says
      """
      subplan bad failed: step 2
      later: cancelled (not started, because bad failed)
      """
    And "plan status" has
      | value             | is        |
      | state             | errored   |
      | subplans[1].state | errored   |
      | subplans[2].state | cancelled |
    And in the sandbox of "shop" this prints
      """
      $ ls
      README.md
      src
      version.txt
      """
    Given in "user" I do
      """
      touch luck
      """
    When I run "holdfast plan execute latest"
    Then it ends with exit code 0
    And in the sandbox of "shop" this prints
      """
      $ cat good.txt bad.txt later.txt
      good
      bad
      later
      """

  Scenario: Going back to before them takes them back with all they made, and undoing that brings them back
    Given this plan has run
      """
      steps:
        - name: divide
          parallel: 2
          subplans:
            - {name: left, steps: [{run: echo left > left.txt}]}
            - {name: right, steps: [{run: echo right > right.txt}]}
      """
    And I remember the sandboxes as "the plan had left them"
    When I run "holdfast plan rollback --yes latest {before step 1} --format json"
    Then it ends with exit code 0
    And the data has
      | value                          | is |
      | impact.child_plans_invalidated | 2  |
    And I note the answer's "left_checkpoint_id" as {what was left}
    And "plan status" has
      | value                  | is        |
      | subplans[0].state      | cancelled |
      | subplans[1].state      | cancelled |
      | subplans[1].superseded | true      |
      | last_completed_step    | -1        |
    When I run "holdfast plan rollback --yes latest {what was left}"
    Then it ends with exit code 0
    And the sandboxes are exactly as "the plan had left them"
    And "plan status" has
      | value                  | is       |
      | subplans[0].state      | complete |
      | subplans[1].state      | complete |
      | subplans[1].superseded | false    |

  Scenario: A kill in the middle of them: those that are done are not done again
    Given steps may write to "~/outbox"
    And the plan
      """
      steps:
        - name: divide
          parallel: 2
          subplans:
            - {name: quick, steps: [{run: echo quick > quick.txt; echo quick >> "$HOME/outbox/log"}]}
            - name: slow
              steps:
                - {run: echo begun > begun.txt; echo begun >> "$HOME/outbox/log"}
                - {run: 'until grep -q quick "$HOME/outbox/log"; do sleep 0.02; done; echo half >> half.txt; pause'}
            - {name: last, steps: [{run: echo last > last.txt}]}
      """
    When I run "holdfast plan execute plan.yaml" up to its pause
    And its whole process group is killed
    Then the killed command is gone
    When I run "holdfast plan resume latest"
    Then it ends with exit code 0
    And in the sandbox of "shop" this prints
      """
      $ cat quick.txt begun.txt half.txt last.txt; sort "$HOME/outbox/log"
      quick
      begun
      half
      last
      begun
      quick
      """
    And no process of the step is left

  Rule: Two that change the same line

    Background:
      Given the plan
        """
        steps:
          - name: divide
            parallel: 2
            subplans:
              - {name: left, steps: [{run: echo left > version.txt; echo l > l.txt}]}
              - {name: right, steps: [{run: echo right > version.txt; echo r > r.txt}]}
              - {name: third, steps: [{run: echo 3 > third.txt}]}
          - {name: use it, run: cp version.txt seen.txt}
        """

    Scenario: The plan stops and says so, both versions are kept, and it goes on once they are resolved
      When I run "holdfast plan execute plan.yaml"
      Then it ends with exit code 5
      And it says
        """
        Constrained. Resolve these conflicts in the sandbox, then continue; nothing was lost:
        {project}/home/sandboxes/{plan}/shop/version.txt
        right: both changed the same lines; both versions are in it, between marks
        holdfast plan resume {plan}
        """
      And "plan status" has
        | value               | is          |
        | state               | constrained |
        | conflicts.length    | 1           |
        | conflicts[0].path   | version.txt |
        | subplans[0].state   | complete    |
        | subplans[2].state   | complete    |
        | last_completed_step | -1          |
      And in the sandbox of "shop" this prints
        """
        $ cat version.txt; ls; cat ../.conflicts/*/ours/shop/version.txt ../.conflicts/*/theirs/shop/version.txt
        <<<<<<< a test plan
        left
        ||||||| before
        1
        =======
        right
        >>>>>>> right
        README.md
        l.txt
        r.txt
        src
        version.txt
        left
        right
        """
      When I run "holdfast plan resume latest"
      Then it ends with exit code 5
      And it says
        """
        These conflicts are not resolved yet:
        {project}/home/sandboxes/{plan}/shop/version.txt: both changed the same lines
        --resolved
        """
      And nothing has changed
      Given in the sandbox of "shop" I do
        """
        echo both > version.txt
        """
      When I run "holdfast plan resume latest --format json"
      Then it ends with exit code 0
      And in the sandbox of "shop" this prints
        """
        $ cat version.txt seen.txt; ls
        both
        both
        README.md
        l.txt
        r.txt
        seen.txt
        src
        third.txt
        version.txt
        """
      And my files are untouched

    Scenario: The user can take a conflict as it is
      When I run "holdfast plan execute plan.yaml"
      And I run "holdfast plan resume latest --resolved --format json"
      Then it ends with exit code 0
      And the data has
        | value | is       |
        | state | complete |
      And in the sandbox of "shop" this prints
        """
        $ grep -c . seen.txt
        7
        """

    Scenario: A conflict can be a failure instead, or be won by the last
      Given in "." I do
        """
        sed 's/parallel: 2/parallel: 2\n    merge: fail_on_conflict/' plan.yaml > fail.yaml
        sed 's/parallel: 2/parallel: 2\n    merge: last_wins/' plan.yaml > last.yaml
        """
      When I run "holdfast plan execute fail.yaml --format json"
      Then it ends with exit code 1
      And the data has
        | value             | is                                                                                        |
        | state             | errored                                                                                   |
        | failed_step.error | subplan right conflicts with what the plan has: version.txt (both changed the same lines) |
      And in the sandbox of "shop" this prints
        """
        $ cat version.txt; ls
        1
        README.md
        src
        version.txt
        """
      When I run "holdfast plan execute last.yaml"
      Then it ends with exit code 0
      And in the sandbox of "shop" this prints
        """
        $ cat seen.txt; ls l.txt r.txt third.txt
        right
        l.txt
        r.txt
        third.txt
        """

    Scenario: If the last wins, it wins only what both changed; all else that each of them did stays
      Given the plan
        """
        steps:
          - {name: nine lines, run: seq 1 9 > lines.txt}
          - name: divide
            parallel: 2
            merge: last_wins
            subplans:
              - {name: left, steps: [{run: "sed -i 's/1/left/; s/5/left/' lines.txt; chmod 755 lines.txt"}]}
              - {name: right, steps: [{run: "sed -i 's/5/right/; s/9/right/' lines.txt"}]}
        """
      When I run "holdfast plan execute plan.yaml"
      Then it ends with exit code 0
      And in the sandbox of "shop" this prints
        """
        $ echo $(cat lines.txt); stat -c %a lines.txt
        left 2 3 4 right 6 7 8 right
        755
        """
