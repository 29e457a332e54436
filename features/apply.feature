Feature: Apply
  The result of a complete plan comes into the real files, of all resources or of none. In a git repository it is one
  commit on top of what is there; whatever the user did meanwhile stays, and where both changed the same, nothing is done.

  Scenario: The result becomes one commit, and my own work in progress stays as it is
    Given in "shop" I do
      """
      echo mine >> README.md; echo mine > mine.txt; echo staged > staged.txt; git add staged.txt
      """
    And this plan has run
      """
      name: raise the version
      resources:
        shop: {type: git, path: shop}
        data: {type: directory, path: data}
      steps:
        - {name: change the number, run: echo 2 > version.txt && git commit --quiet --all --message "of the sandbox"}
        - {name: move the sources, run: mkdir lib && git mv src/app.py lib/ && rmdir src && chmod +x lib/app.py && echo trace > trace.log}
        - {name: change the data, resource: data, run: "rm latest && mkdir archive && cp -p private.key archive/ && echo 4 >> orders.csv"}
      """
    And in "shop" I do
      """
      echo later > later.txt; git add later.txt; git commit --quiet --message "of mine, meanwhile" later.txt
      """
    When I run "holdfast plan apply --yes latest --format json"
    Then it ends with exit code 0
    And the data has
      | value         | is             |
      | plan_id       | {plan}         |
      | phase         | apply          |
      | state         | applied        |
      | files_changed | 6              |
      | left_out      | ["trace.log"]  |
    And in "shop" this prints
      """
      $ git log --format=%s%n%an; git show --format= --summary --name-status HEAD; git branch --show-current; git status --short
      raise the version
      A User
      of mine, meanwhile
      A User
      first
      A User
      R100	src/app.py	lib/app.py
      M	version.txt
      main
       M README.md
      A  staged.txt
      ?? mine.txt
      """
    And in "shop" this prints
      """
      $ git log -1 --format=%b; cat version.txt README.md mine.txt later.txt; ls; test -x lib/app.py
      - change the number
      - move the sources
      - change the data

      Holdfast-Plan: {plan}

      2
      The shop.
      mine
      mine
      later
      README.md
      later.txt
      lib
      mine.txt
      staged.txt
      version.txt
      """
    And in "data" this prints
      """
      $ cat orders.csv archive/private.key; stat -c %a archive/private.key; ls
      1;2;3
      4
      secret
      600
      archive
      empty
      orders.csv
      private.key
      """
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 4
    And it says "applied already"
    And nothing has changed
    When I run "holdfast plan execute latest"
    Then it ends with exit code 0
    And it says "is applied already; nothing was run"
    And nothing has changed

  Rule: What cannot be applied safely is refused, and a plan that is complete stays complete

    Background:
      Given this plan has run
        """
        steps:
          - {name: change the version, run: echo 2 > version.txt && echo new > new.txt}
          - {name: change the data, resource: data, run: echo 4 >> orders.csv && rm private.key}
        """

    @unchanged
    Scenario: Executing a complete plan says so, and nothing is done twice
      When I run "holdfast plan execute latest"
      Then it ends with exit code 0
      And it says "is complete already; nothing was run"
      And nothing has changed

    @unchanged
    Scenario: Without anybody to ask, apply wants --yes
      When I run "holdfast plan apply latest"
      Then it ends with exit code 2
      And nothing has changed

    Scenario: Both changed the same files: they are named and nothing is touched; then, without a commit, only files are
      Given in "." I do
        """
        echo mine > shop/new.txt; echo mine >> data/orders.csv; echo other > data/other.txt
        """
      When I run "holdfast plan apply --yes latest --format json"
      Then it ends with exit code 5
      And the data has
        | value         | is                                           |
        | error.type    | ConflictError                                |
        | error.paths   | ["shop: new.txt", "data: orders.csv"]        |
      And nothing has changed
      Given in "." I do
        """
        rm shop/new.txt; echo '1;2;3' > data/orders.csv
        """
      When I run "holdfast plan apply --no-commit --yes latest"
      Then it ends with exit code 0
      And in "data" this prints
        """
        $ cat orders.csv; ls; cd ../shop; cat version.txt new.txt; git log --format=%s; git status --short
        1;2;3
        4
        empty
        latest
        orders.csv
        other.txt
        2
        new
        first
         M version.txt
        ?? new.txt
        """

    Scenario: A dry run says exactly what would change, and changes nothing
      Given in "." I do
        """
        printf '0\n0\n0\n' > shop/mine.txt; cd shop; git add mine.txt; git commit --quiet --message "of mine, meanwhile"
        """
      When I run "holdfast plan apply --dry-run latest"
      Then it ends with exit code 0
      And it says
        """
        M  shop/version.txt
        A  shop/new.txt
        M  data/orders.csv
        D  data/private.key
        would be a commit on main:
        - change the version
        Holdfast-Plan: {plan}
        Nothing was changed.
        holdfast plan apply {plan}
        """
      And nothing has changed
      Given in "." I do
        """
        echo mine > shop/new.txt
        """
      When I run "holdfast plan apply --dry-run latest"
      Then it ends with exit code 5
      And it says "shop: new.txt"
      And nothing has changed

    @unchanged
    Scenario: A result that is not of git alone cannot be left on a branch
      When I run "holdfast plan apply --yes --branch topic latest"
      Then it ends with exit code 4
      And it says "directory data"
      And nothing has changed

    @unchanged
    Scenario: What was not applied cannot be taken back
      When I run "holdfast plan unapply --yes latest"
      Then it ends with exit code 4
      And nothing has changed
