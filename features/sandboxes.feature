Feature: Sandboxes
  A plan never works on the user's files. Each resource gets a private sandbox that begins as what the user sees now,
  with their uncommitted and untracked work; until it is applied, nothing of theirs changes, not even inside .git.

  Scenario: Whatever a plan does to its sandbox, my repository stays byte for byte as it was
    Given in "shop" I do
      """
      echo stashed >> README.md; git stash --quiet
      git config alias.mine status
      printf '#!/bin/sh\ntouch hook-ran\n' | tee .git/hooks/post-commit > .git/hooks/post-checkout
      chmod +x .git/hooks/post-commit .git/hooks/post-checkout
      echo staged > staged.txt; git add staged.txt
      echo uncommitted >> version.txt
      echo untracked > untracked.txt
      echo ignored > ignored.log
      """
    And the plan
      """
      steps:
        - {name: look, run: cat staged.txt version.txt untracked.txt && git status --short, writes: false}
        - name: turn everything upside down
          run: |
            git commit --quiet --all --message "from the plan"
            git checkout --quiet -b another
            echo more > README.md
            git stash --quiet
            git config alias.mine log
            git branch --delete --force "$(git branch --format='%(refname:short)' | grep -v another | head -1)"
            rm -rf src untracked.txt .git/hooks
            chmod 600 version.txt
            rm -rf "$HOLDFAST_RESOURCE_DATA"/*
      """
    When I run "holdfast plan execute plan.yaml --format json"
    Then it ends with exit code 0
    And my files are untouched
    And the data has
      | value           | is                                                                                      |
      | steps[0].output | "staged\n1\nuncommitted\nuntracked\nA  staged.txt\n M version.txt\n?? untracked.txt\n"  |
    And in the sandbox of "shop" this prints
      """
      $ git branch --show-current; git log -1 --format=%s; ls
      another
      from the plan
      README.md
      hook-ran
      ignored.log
      staged.txt
      version.txt
      """

  Scenario: An empty repository, a detached HEAD, a symlink to the repository: all of them work
    Given in "." I do
      """
      git init --quiet empty; echo mine > empty/mine.txt
      ln -s shop link
      git clone --quiet shop detached; cd detached
      echo 2 > version.txt; git commit --quiet --all --message second; git checkout --quiet --detach HEAD^
      """
    And the plan
      """
      name: unusual places
      resources:
        empty: {type: git, path: empty}
        detached: {type: git, path: detached}
        linked: {type: git, path: link}
      steps:
        - {run: cp mine.txt made.txt, resource: empty}
        - {run: cp version.txt old.txt, resource: detached}
        - {run: echo 3 > version.txt, resource: linked}
      """
    When I run "holdfast plan execute plan.yaml"
    Then it ends with exit code 0
    And my files are untouched
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    And in "empty" this prints
      """
      $ git log --format=%s --name-only; git branch --show-current; git status --short
      unusual places

      made.txt
      main
      ?? mine.txt
      """
    And in "detached" this prints
      """
      $ git log --format=%s; cat old.txt; git branch --show-current; git log -1 --format=%s main; git status --short
      unusual places
      first
      1
      second
      """
    And in "." this prints
      """
      $ readlink link; cat shop/version.txt; git -C shop log -1 --format=%s; git -C shop status --short
      shop
      3
      unusual places
      """

  Scenario: Submodules are there, and a plan's changes in them stay in the sandbox
    Given in "." I do
      """
      git init --quiet library; cd library; echo 1 > lib.txt; git add .; git commit --quiet --message library; cd ../shop
      git -c protocol.file.allow=always submodule --quiet add ../library library; git commit --quiet --message submodule
      """
    And the plan
      """
      steps:
        - {run: git submodule status && git -C library log --format=%s, writes: false}
        - {run: echo 2 > library/lib.txt; git -C library commit --quiet --all --message changed}
      """
    When I run "holdfast plan execute plan.yaml --format json"
    Then it ends with exit code 0
    And my files are untouched
    And it says "library (heads/main)\nlibrary"
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 6
    And it says "library/lib.txt"
    And my files are untouched

  Scenario Outline: What is not the root of a repository with files is refused: <what>
    Given in "." I do
      """
      <preparation>
      """
    And the plan
      """
      name: not this one
      resources: {it: {type: git, path: <path>}}
      steps: [{run: "true"}]
      """
    When I run "holdfast plan create plan.yaml"
    Then it ends with exit code <code>
    And it says "<words>"
    And there is no sandbox
    And my files are untouched

    Examples:
      | what               | preparation                         | path     | code | words                    |
      | a subdirectory     | true                                | shop/src | 6    | it is not its root       |
      | a bare repository  | git clone --quiet --bare shop bare  | bare     | 6    | is a bare repository     |
      | not a repository   | true                                | data     | 6    | is not a git repository  |
