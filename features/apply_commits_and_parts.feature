Feature: Apply commits and parts
  The commits that were made in a sandbox come onto the branch, as if they had been made there; what was not committed
  becomes one more. And a result need not come at once: a part of it can be applied, and the rest later.

  Scenario: The commits of an agent come onto my branch, although it has moved since
    Given this plan has run
      """
      steps:
        - name: work
          run: |
            echo 2 > version.txt; git commit --quiet --all --message "raise the version"
            git rm --quiet src/app.py; git commit --quiet --message "remove the app" --author "Agent <agent@example.org>"
            echo open > todo.txt
      """
    And in "shop" I do
      """
      echo mine > mine.txt; git add mine.txt; git commit --quiet --message "of mine"
      """
    When I run "holdfast plan apply --dry-run latest"
    Then it ends with exit code 0
    And it says "would be kept on main"
    And it says "raise the version"
    And it says "would be a commit after them on main"
    And nothing has changed
    When I run "holdfast plan apply --yes -m 'what is open' latest"
    Then it ends with exit code 0
    And it says "of what was not committed"
    And in "shop" this prints
      """
      $ git log --format='%s, %an, %cn'; git status --short; ls
      what is open, A User, A User
      remove the app, Agent, A User
      raise the version, A User, A User
      of mine, A User, A User
      first, A User, A User
      README.md
      mine.txt
      todo.txt
      version.txt
      """
    When I run "holdfast plan unapply --yes latest"
    Then it ends with exit code 0
    And it says "and 2 before it are removed from your branch"
    And in "shop" this prints
      """
      $ git log --format=%s; git status --short; cat version.txt
      of mine
      first
      1
      """
    When I run "holdfast plan apply --yes --commits squash latest"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ git log --format=%s
      a test plan
      of mine
      first
      """

  Scenario: Commits that are no line become one, and one line says why
    Given this plan has run
      """
      steps:
        - name: work
          run: |
            git checkout --quiet -b other; echo 2 > version.txt; git commit --quiet --all --message "on a branch"
            git checkout --quiet -; echo more >> README.md; git commit --quiet --all --message "beside it"
            git merge --quiet --message both other
      """
    When I run "holdfast plan apply --yes --commits keep latest"
    Then it ends with exit code 5
    And it says "is a merge. Nothing was applied."
    And it says "holdfast plan apply --commits squash"
    And nothing has changed
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    And it says "the commits of the sandbox became one:"
    And in "shop" this prints
      """
      $ git log --format=%s%n%b -1 | head -1; git rev-list --count HEAD; git status --short
      a test plan
      2
      """

  Scenario: A part of the result now, the rest later, and the last part taken back
    Given this plan has run
      """
      steps:
        - {name: the shop, run: echo 2 > version.txt; echo more >> README.md; rm -r src}
        - {name: the data, resource: data, run: echo 4 >> orders.csv}
      """
    When I run "holdfast plan apply --yes --only src --only data:orders.csv latest"
    Then it ends with exit code 0
    And it says "2 files of the result not applied yet"
    And it says "apply the rest"
    And in "." this prints
      """
      $ git -C shop show --name-status --format=; cat shop/version.txt; tail -1 data/orders.csv
      D	src/app.py
      1
      4
      """
    When I run "holdfast plan status latest"
    Then it says "in part: src, data:orders.csv"
    When I run "holdfast plan diff latest -- version.txt"
    Then it says "applied in part: src, data:orders.csv"
    Given in "shop" I do
      """
      git commit --quiet --amend --message "only the sources"; mkdir src; echo mine > src/app.py; git add .
      git commit --quiet --message "my own sources"
      """
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ cat version.txt src/app.py; git status --short
      2
      mine
      """
    When I run "holdfast plan unapply --yes latest"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ cat version.txt src/app.py; git status --short; git log --format=%s
      1
      mine
      my own sources
      only the sources
      first
      """
    When I run "holdfast plan apply --yes --only src latest"
    Then it ends with exit code 3
    And it says "names nothing of the plan's result that is not applied yet"

  Scenario: What changed at some files and folders
    Given this plan has run
      """
      steps:
        - {name: the shop, run: echo 2 > version.txt; rm -r src; echo x > new.txt}
      """
    When I run "holdfast plan diff --name-only latest -- src new.txt"
    Then it ends with exit code 0
    And it says
      """
      shop/new.txt
      shop/src/app.py
      """
    When I run "holdfast plan diff latest -- README.md"
    Then it says "Nothing changed at README.md."
    When I run "holdfast plan diff latest -- no-such-file"
    Then it ends with exit code 3
    And it says "'no-such-file' names nothing in the plan's sandboxes"
