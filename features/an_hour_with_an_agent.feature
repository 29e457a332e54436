Feature: An hour with an agent
  An agent does good work, then damage, and goes on. The moment before the damage is found by its name, its work is
  kept, and another agent goes on from there. What I want of it comes into my repository, with its commits.

  Background:
    Given the agent "writer" that does
      """
      mkdir docs; echo page > docs/page.md; echo more > docs/more.md
      git add .; git commit --quiet --message "write the docs" --author "Writer <writer@example.org>"
      pause
      echo 2 > version.txt
      pause second
      rm -r docs
      pause third
      echo broken > src/app.py; git commit --quiet --all --message "make it faster"
      """

  Scenario: The agent deletes the docs in the middle; the work before that is kept, and another agent goes on from it
    When I run "holdfast run --name 'new docs' --settle 100ms --resource shop -- writer" up to its pause
    Then 1 moment at which it rested is kept
    When it goes on to its second pause
    Then 2 moments at which it rested are kept
    When it goes on to its third pause
    Then 3 moments at which it rested are kept
    When it goes on to its end
    Then it ends with exit code 0
    And my files are untouched

    When I run "holdfast log"
    Then it says
      """
      make it faster, 1 file: src/app.py
      -2 files: docs/more.md, docs/page.md
      1 file: version.txt +1 -1
      write the docs, +2 files: docs/more.md, docs/page.md
      """
    When I note the moment before "-2 files: docs" as {good}
    And I run "holdfast keep --yes {good}"
    Then it ends with exit code 0
    And it says "Nothing was run."
    And in the sandbox of "shop" this prints
      """
      $ cat docs/page.md version.txt src/app.py; git log --format=%s
      page
      2
      print('hello')
      write the docs
      first
      """

    Given the agent "tester" that does
      """
      echo "tested $(cat version.txt)" > tests.txt; git add tests.txt version.txt
      git commit --quiet --message "test it" --author "Tester <tester@example.org>"
      echo scratch > notes.txt
      """
    When I run "holdfast run --in latest -- tester"
    Then it ends with exit code 0
    And my files are untouched

    When I run "holdfast rollback --yes --only docs/more.md latest start"
    And I run "holdfast execute latest"
    And I run "holdfast apply --yes -m 'what is left' latest"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ git log --format='%s, %an'; git status --short; ls docs; cat version.txt tests.txt notes.txt
      what is left, A User
      test it, Tester
      write the docs, Writer
      first, A User
      page.md
      2
      tested 2
      scratch
      """
    When I run "holdfast unapply --yes latest"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ git log --format=%s; git status --short; ls; cat version.txt
      first
      README.md
      src
      version.txt
      1
      """

  Scenario: While it works it names a moment, and I look at it, save it and bring a folder back from another terminal
    Given the agent "careful" that does
      """
      mkdir docs; echo page > docs/page.md; holdfast mark "docs written"
      rm -r docs
      pause
      ls docs
      """
    When I run "holdfast run --resource shop -- careful" up to its pause
    And I run "holdfast checkpoint create --label before latest"
    Then it ends with exit code 0
    When I run "holdfast log"
    Then it says
      """
      "before" -1 file: docs/page.md
      "docs written" +1 file: docs/page.md
      """
    When I run "holdfast rollback --yes --only docs latest 'docs written'"
    Then it ends with exit code 0
    And it says "the plan goes on"
    When I run "holdfast rollback --yes latest 'docs written'"
    Then it ends with exit code 5
    When it goes on to its end
    Then it ends with exit code 0
    And it says "page.md"
    And my files are untouched
    When I run "holdfast rollback --yes latest before"
    Then in the sandbox of "shop" this prints
      """
      $ ls
      README.md
      src
      version.txt
      """
