Feature: Stories of applying
  What a person goes through who works on beside the plan: their change and the plan's meet in one file, or they think
  better of it after the result is in their files.

  Background:
    Given in "shop" I do
      """
      printf '%s\n' one two three four five six seven > list.txt; git add list.txt
      git commit --quiet --message "a list"
      """
    And this plan has run
      """
      name: spell it
      resources:
        shop: {type: git, path: shop}
      steps:
        - name: change the first line
          run: sed -i 's/^one$/first/' list.txt
          decision: {type: strategy_choice, question: "How is the first line spelled?", chosen: first}
        - {name: note it, run: echo noted > note.txt}
      """

  Scenario: Conflict, resolve, apply
    Given in "shop" I do
      """
      sed -i 's/^one$/eins/; s/^seven$/last/' list.txt; git commit --quiet --all --message "of mine"
      """
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 5
    And it says
      """
      shop: list.txt
      holdfast plan diff --patch {plan}
      --branch NAME
      """
    And nothing has changed
    Given in "shop" I do
      """
      sed -i 's/^eins$/one/' list.txt; git commit --quiet --all --message "one again"
      """
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    And it says
      """
      M  list.txt (merged with your change)
      A  note.txt
      holdfast plan unapply {plan}
      """
    And in "shop" this prints
      """
      $ cat list.txt; git log --format=%s; git log -1 --format=%b; git status --short
      first
      two
      three
      four
      five
      six
      last
      spell it
      one again
      of mine
      a list
      first
      - change the first line
      - note it

      Decisions:
      - How is the first line spelled? first

      Holdfast-Plan: {plan}
      """

  Scenario: Conflict, branch, merge by git
    Given in "shop" I do
      """
      sed -i 's/^one$/eins/' list.txt; git commit --quiet --all --message "of mine"
      """
    When I run "holdfast plan apply --yes --branch spelling latest --format json"
    Then it ends with exit code 0
    And the data has
      | value   | is       |
      | plan_id | {plan}   |
      | state   | applied  |
      | branch  | spelling |
    And in "shop" this prints
      """
      $ git status --short; git branch --show-current; head -1 list.txt; git show spelling:list.txt | head -1; git log --format=%s spelling
      main
      eins
      first
      spell it
      a list
      first
      """
    When I run "holdfast plan unapply --yes latest"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ git branch --format='%(refname:short)'
      main
      """

  Scenario: Apply, unapply, and apply again
    Given in "shop" I do
      """
      echo mine > mine.txt; echo staged > staged.txt; git add staged.txt
      """
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    When I run "holdfast plan unapply --dry-run latest"
    Then it ends with exit code 0
    And it says "would be restored or removed"
    And nothing has changed
    When I run "holdfast plan unapply --yes latest --format json"
    Then it ends with exit code 0
    And the data has
      | value         | is        |
      | plan_id       | {plan}    |
      | phase         | execute   |
      | state         | complete  |
      | files_changed | 2         |
    And in "shop" this prints
      """
      $ head -1 list.txt; ls note.txt 2>&1 | grep -c .; git log --format=%s; git status --short
      one
      1
      a list
      first
      A  staged.txt
      ?? mine.txt
      """
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ head -1 list.txt; cat note.txt; git status --short
      first
      noted
      A  staged.txt
      ?? mine.txt
      """

  Scenario: What somebody changed since the apply is not taken from them
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    Given in "shop" I do
      """
      echo more >> note.txt
      """
    When I run "holdfast plan unapply --yes latest --format json"
    Then it ends with exit code 5
    And the data has
      | value       | is                 |
      | error.paths | ["shop: note.txt"] |
    And nothing has changed
    Given in "shop" I do
      """
      git commit --quiet --all --message "on top"
      """
    When I run "holdfast plan unapply --yes latest"
    Then it ends with exit code 5
    And it says "git revert"
    And nothing has changed
