Feature: Effects outside
  A message that was sent is not unsent by bringing files back. A step says that it does such a thing; then it is never
  silently done twice, going back names it, and if the step says how it is undone, that is done, once.

  Background:
    Given steps may write to "~/outbox"

  Rule: A step that was cut short and may have sent something already

    Background:
      Given the plan
        """
        steps:
          - {name: send, run: echo sent >> "$HOME/outbox/mail"; echo half > half.txt; pause, side_effects: true}
          - {name: then, run: echo done > done.txt}
        """
      When I run "holdfast plan execute plan.yaml" up to its pause
      And its whole process group is killed

    Scenario: It is not run again by itself, but if a person says so
      When I run "holdfast plan resume latest"
      Then it ends with exit code 4
      And it says
        """
        Step 1 (send) was interrupted, and what it does outside of the sandboxes may have happened already.
        holdfast plan resume --rerun {plan}
        holdfast plan resume --skip {plan}
        """
      And in "user" this prints
        """
        $ cat outbox/mail
        sent
        """
      When I run "holdfast plan resume --rerun latest --format json"
      Then it ends with exit code 0
      And in the sandbox of "shop" this prints
        """
        $ cat "$HOME/outbox/mail" half.txt done.txt
        sent
        sent
        half
        done
        """

    Scenario: It counts as done if a person says so
      When I run "holdfast plan resume --skip latest"
      Then it ends with exit code 0
      And in the sandbox of "shop" this prints
        """
        $ cat "$HOME/outbox/mail" half.txt done.txt
        sent
        half
        done
        """
      And the decisions are
        | type              | step | chosen                                                        | mark |
        | prompt_definition |      | a test plan                                                   |      |
        | tool_invocation   | send | echo sent >> "$HOME/outbox/mail"; echo half > half.txt; pause |      |
        | user_intervention | send | no, it counts as done                                         |      |
        | tool_invocation   | then | echo done > done.txt                                          |      |

  Rule: Steps that going back undoes

    Background:
      Given this plan has run
        """
        steps:
          - {name: book, run: echo book >> "$HOME/outbox/log", side_effects: true, compensate: echo cancel >> "$HOME/outbox/log"}
          - {name: write, run: echo letter > letter.txt}
          - {name: send, run: echo send >> "$HOME/outbox/log", side_effects: true}
          - name: pay
            run: echo pay >> "$HOME/outbox/log"
            side_effects: true
            compensate: {tool: shell, args: {command: 'cat letter.txt && echo refund >> "$HOME/outbox/log"'}}
        """

    Scenario: What can be undone is undone in reverse, before the files go back; what cannot be is named
      When I run "holdfast plan rollback --dry-run latest {start} --format json"
      Then it ends with exit code 0
      And the data has
        | value                                  | is   |
        | impact.compensated.length              | 2    |
        | impact.side_effects_not_undone.length  | 1    |
        | impact.side_effects_not_undone[0].step | send |
      And nothing has changed
      When I run "holdfast plan rollback --yes latest {start} --format json"
      Then it ends with exit code 0
      And the data has
        | value                                  | is   |
        | impact.compensated[0].step             | pay  |
        | impact.compensated[0].note             | done |
        | impact.compensated[1].step             | book |
        | impact.side_effects_not_undone[0].step | send |
      And I note the answer's "left_checkpoint_id" as {what was left}
      And in the sandbox of "shop" this prints
        """
        $ cat "$HOME/outbox/log"; ls
        book
        send
        pay
        refund
        cancel
        README.md
        src
        version.txt
        """
      When I run "holdfast plan rollback --yes latest {what was left}"
      And I run "holdfast plan rollback --yes latest {start}"
      Then it ends with exit code 0
      And in "user" this prints
        """
        $ cat outbox/log
        book
        send
        pay
        refund
        cancel
        """
