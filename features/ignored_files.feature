Feature: Files that git ignores
  A sandbox has what my folder has, with my dependencies, my secrets and what my programs built: the files that git
  ignores, too. They are in every checkpoint. Apply leaves them alone unless I ask for them, and what was too large to
  be copied is named, and never deleted.

  Background:
    Given in "shop" I do
      """
      mkdir -p build/tools build/cache; echo SECRET=1 > server.log; echo tool > build/tools/jest
      head -c 3000000 /dev/zero > build/cache/large
      """

  Scenario: They are in the sandbox, and a rollback restores them
    Given this plan has run
      """
      steps:
        - {name: use them, run: "cat server.log build/tools/jest > seen.txt"}
        - {name: wreck them, run: "rm -rf build; echo SECRET=2 > server.log"}
      """
    Then my files are untouched
    And in the sandbox of "shop" this prints
      """
      $ cat seen.txt server.log; ls
      SECRET=1
      tool
      SECRET=2
      README.md
      seen.txt
      server.log
      src
      version.txt
      """
    When I run "holdfast plan rollback --yes latest {before step 2}"
    Then it ends with exit code 0
    And in the sandbox of "shop" this prints
      """
      $ cat server.log; ls build/tools build/cache
      SECRET=1
      build/cache:
      large

      build/tools:
      jest
      """

  Scenario: What is beyond the limit is named when the sandbox is made, in the status and for programs
    Given the file "plan.yaml"
      """
      name: a small sandbox
      resources:
        shop: {type: git, path: shop}
      steps:
        - {run: "test -e server.log && test ! -e build && mkdir build && echo new > build/new"}
      """
    When I run "holdfast --config sandbox.copy-ignored-limit=1MB plan execute plan.yaml"
    Then it ends with exit code 0
    And it says "left out build: git ignores it, and it has 3.0 MB in 2 files; a new plan with `--include /build` gets it"
    And it says "Only 1 ignored file changed."
    When I run "holdfast plan status"
    Then it says "left out     build: git ignores it, and it has 3.0 MB in 2 files"
    And "plan status" has
      | value                         | is    |
      | resources[0].left_out[0].path | build |
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    And it says "left in the sandbox, because git ignores it  build/new"
    And my files are untouched
    When I run "holdfast --config sandbox.copy-ignored-limit=1MB run --resource shop --include build/tools --exclude server.log -- ls -R build"
    Then it ends with exit code 0
    And it says "jest"
    And it says "server.log: excluded"
    And it does not say "large"
    And my files are untouched

  Scenario: Apply leaves them in the sandbox until I ask for them
    Given this plan has run
      """
      name: new secrets
      resources:
        shop: {type: git, path: shop}
      steps:
        - {run: "echo SECRET=2 > server.log; rm -rf build; echo 2 > version.txt"}
      """
    When I run "holdfast plan diff"
    Then it says
      """
      M  version.txt  +1 -1
      1 file, 1 line added, 1 removed
      and 3 ignored files; `--ignored` shows them.
      """
    When I run "holdfast plan diff --ignored"
    Then it says "D  build/tools/jest"
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    And it says "left in the sandbox, because git ignores it  build/cache/large, build/tools/jest, server.log"
    And in "shop" this prints
      """
      $ cat version.txt server.log; ls build/tools; git status --short
      2
      SECRET=1
      jest
      """
    When I run "holdfast plan unapply --yes latest"
    Then it ends with exit code 0
    When I run "holdfast plan apply --yes --include-ignored server.log latest --format json"
    Then it ends with exit code 0
    And the data has
      | value         | is                                       |
      | files_changed | 2                                        |
      | left_out      | ["build/cache/large","build/tools/jest"] |
    And in "shop" this prints
      """
      $ cat version.txt server.log; ls build/tools; git show --format= --name-only
      2
      SECRET=2
      jest
      version.txt
      """
    When I run "holdfast plan unapply --yes latest"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ cat version.txt server.log; git status --short
      1
      SECRET=1
      """
