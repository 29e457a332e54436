Feature: An agent works in my own folder
  I let an agent work directly in my repository. Each of its calls becomes a point that I can go back to, in place, and
  what I changed meanwhile stays as it is.

  Background:
    Given an agent works in "shop"
      """
      > write the docs
      $ mkdir docs; echo page > docs/page.md; echo more > docs/more.md
      $ git add docs; git commit --quiet --message "write the docs"
      > make it faster
      $ rm -r docs
      $ echo built > cache.log
      $ printf 'one\ntwo\nthree\n' > src/app.py
      """

  Scenario: It deletes the docs, I edit a file, and I take out that call alone, and bring it back
    When in "shop" I do
      """
      printf 'one\ntwo\nthree\nfour, by me\n' > src/app.py; echo mine > mine.txt
      """
    And I run "holdfast log" in "shop"
    Then it says
      """
      -2 files: docs/more.md, docs/page.md
      commit
      """
    When I run "holdfast undo --only-call 3 --yes" in "shop"
    Then it ends with exit code 0
    And it says "rm -r docs"
    And in "shop" this prints
      """
      $ cat docs/page.md docs/more.md mine.txt cache.log src/app.py; git log --format=%s
      page
      more
      mine
      built
      one
      two
      three
      four, by me
      write the docs
      first
      """
    When I run "holdfast redo --yes" in "shop"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ ls; tail -n 1 src/app.py
      README.md
      cache.log
      mine.txt
      src
      version.txt
      four, by me
      """

  Scenario: A whole prompt is undone, with ignored files and commits
    When I run "holdfast undo --prompt 2 --yes" in "shop"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ ls; cat src/app.py; git status --short; git log --format=%s
      README.md
      docs
      src
      version.txt
      print('hello')
      write the docs
      first
      """
    When I run "holdfast undo --prompt 1 --yes" in "shop"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ ls; git status --short; git log --format=%s; git fsck --no-dangling
      README.md
      src
      version.txt
      first
      """

  Scenario: What I changed in the same lines is listed, and nothing is changed
    When in "shop" I do
      """
      printf 'one\nTWO\nthree\n' > src/app.py
      """
    And I run "holdfast undo --yes" in "shop"
    Then it ends with exit code 5
    And it says "src/app.py"
    And it says "--force"
    And in "shop" this prints
      """
      $ sed -n 2p src/app.py
      TWO
      """

  Scenario: What I write myself is told from what the agent did
    When in "shop" I do
      """
      echo mine >> cache.log
      """
    And an agent works in "shop"
      """
      > look
      $ true
      """
    And I run "holdfast blame cache.log" in "shop"
    Then it says "you, or a program of yours"
    And it says "call 4: Bash echo built > cache.log"
