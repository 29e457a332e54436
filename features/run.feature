Feature: Running any program
  A coding agent or a script needs no plan file: it is run in a sandbox, and whenever it has written something and then
  rests for a moment, a checkpoint is taken. Afterwards its work is looked at, gone back in, and applied or dropped.

  Scenario: A program edits, waits, edits, deletes: each moment can be gone back to, and the one that is wanted applied
    When I run "holdfast run --settle 100ms --resource shop -- sh -c 'echo one > f.txt; pause; echo two >> f.txt; pause second; rm f.txt README.md'" up to its pause
    Then 1 moment at which it rested is kept
    When it goes on to its second pause
    Then 2 moments at which it rested are kept
    When it goes on to its end
    Then it ends with exit code 0
    And it says
      """
      D  README.md
      holdfast plan diff --patch {plan}
      holdfast plan apply {plan}
      holdfast plan delete {plan}
      """
    And my files are untouched
    When I run "holdfast plan rollback --yes latest {rest 1}"
    Then in the sandbox of "shop" this prints
      """
      $ cat f.txt README.md
      one
      The shop.
      """
    When I run "holdfast plan rollback --yes latest {end}"
    Then in the sandbox of "shop" this prints
      """
      $ ls
      src
      version.txt
      """
    When I run "holdfast plan rollback --yes --only f.txt latest {rest 2}"
    And I run "holdfast plan rollback --yes --only README.md latest {start}"
    And I run "holdfast plan execute latest"
    Then it ends with exit code 0
    When I run "holdfast plan apply --yes latest"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ cat f.txt README.md; git show --format= --name-status
      one
      two
      The shop.
      A	f.txt
      """

  Scenario: Each moment is named by what changed in it, so the one before the damage is found by reading
    When I run "holdfast run --settle 100ms --resource shop -- sh -c 'mkdir docs; touch docs/a docs/b docs/c docs/d; git add .; git -c user.name=a -c user.email=b commit -qm manual; pause; echo 2 > version.txt; rm -r docs; pause second; echo 3 > version.txt'" up to its pause
    Then 1 moment at which it rested is kept
    When it goes on to its second pause
    Then 2 moments at which it rested are kept
    When it goes on to its end
    Then it ends with exit code 0
    When I run "holdfast log --stat"
    Then it says
      """
      after step 1: 1 file: version.txt +1 -1
      -4 files docs/, 1 file: version.txt
      D  docs/a
      manual, +4 files docs/
      4 files, 0 lines added, 0 removed
      """
    When I run "holdfast checkpoint show @-2"
    Then it says "-4 files docs/, 1 file: version.txt"
    When I run "holdfast plan rollback --yes --only docs latest @-3"
    Then in the sandbox of "shop" this prints
      """
      $ ls docs; cat version.txt
      a
      b
      c
      d
      3
      """
    When I run "holdfast plan rollback --yes latest start"
    Then it ends with exit code 0
    When I run "holdfast plan diff latest start @"
    Then it says "Nothing changed."
    When I run "holdfast checkpoint create latest --label @-1"
    Then it ends with exit code 2
    And it says "looks like a moment"
    When I run "holdfast log -i"
    Then it ends with exit code 2
    And it says "needs a terminal"

  Scenario: Its exit code is the program's, its output goes where it would have gone, and its work is there all the same
    When I run "holdfast run -- sh -c 'echo out; echo wrong >&2; echo 2 > version.txt; exit 3'" in "shop"
    Then it ends with exit code 3
    And it says
      """
      out
      wrong
      sh ended with exit code 3.
      M  version.txt
      """
    And my files are untouched
    When I run "holdfast plan apply --yes latest" in "shop"
    Then it ends with exit code 0
    And in "shop" this prints
      """
      $ cat version.txt; git log --format=%s | wc -l
      2
      2
      """

  Scenario: A program that does not exist is refused before there is a plan
    When I run "holdfast run -- no-such-program" in "shop"
    Then it ends with exit code 127
    And it says "no-such-program cannot be started"
    When I run "holdfast plan list --all" in "shop"
    Then it says "There are no plans in any project."
    And it does not say "plan list --all"

  Scenario: Standard output is the program's alone, and ends when its reader has seen enough
    Then in "shop" this prints
      """
      $ holdfast run -- cat version.txt 2> ../said; holdfast run -- yes 2>> ../said | head -2
      1
      y
      y
      """

  Scenario: If a run has more moments than are kept, its summary says how many went
    When I run "holdfast run --config sandbox.checkpoint.max-checkpoints-per-plan=2 --resource shop -- touch made"
    Then it ends with exit code 0
    And it says "2 checkpoints to roll back to"
    And it says "Thinned out in between: 2 checkpoints; at most 2 are kept."

  Scenario: What a program was given it gets again when it goes on, and how it ended is shown
    Given steps may write to "~/outbox"
    When I run "holdfast run --pass-env TOKEN --resource shop -- sh -c 'echo $TOKEN >> ~/outbox/log; exit 3'" with TOKEN=t1
    Then it ends with exit code 3
    When I run "holdfast plan rollback --yes latest {start}"
    And I run "holdfast plan execute latest"
    Then it ends with exit code 4
    And it says "The variable TOKEN is not set now, but this program was given it"
    When I run "holdfast plan execute latest" with TOKEN=t2
    Then it ends with exit code 3
    And it says "Complete, but sh ended with exit code 3."
    When I run "holdfast plan list"
    Then it says "complete, exit 3"
    And in "user" this prints
      """
      $ cat outbox/log
      t1
      t2
      """

  Scenario: Another program goes on from an earlier moment, in one command
    When I run "holdfast run --settle 100ms --resource shop -- sh -c 'echo one > f.txt; pause; rm f.txt README.md'" up to its pause
    Then 1 moment at which it rested is kept
    When it goes on to its end
    And I run "holdfast run --yes --in latest --at {rest 1} -- sh -c 'cat f.txt; echo two >> f.txt'"
    Then it ends with exit code 0
    And it says "2 files restored or removed"
    And my files are untouched
    And in the sandbox of "shop" this prints
      """
      $ cat f.txt README.md
      one
      two
      The shop.
      """
    When I run "holdfast plan rollback --yes latest {end}"
    Then in the sandbox of "shop" this prints
      """
      $ ls
      src
      version.txt
      """
