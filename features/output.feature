Feature: Output
  People read text; programs ask for JSON or YAML and get one envelope, for errors too. The exit code says who can act.

  Scenario: The same answer as text, JSON and YAML, wherever the format is asked for
    Given this plan has run
      """
      steps: [{name: raise the version, run: echo 2 > version.txt}]
      """
    When I run "holdfast plan status --format json"
    Then the answer is one envelope in json
    When I run "holdfast --format yaml plan status"
    Then the answer is one envelope in yaml
    And both answers have the same data
    When I run "holdfast plan status"
    Then it says
      """
      Plan {plan}  a test plan
      execute / complete, 1 of 1 step done
      ok  raise the version
      holdfast plan apply {plan}
      """
    When I run "holdfast plan status" on a terminal and answer ""
    Then it ends with exit code 0
    And it says "raise the version"
    And it is coloured

  Rule: Errors come in the envelope as well, with the exit code that says what kind they are

    Background:
      Given this plan has run
        """
        policy: {rollback_enabled: false}
        steps: [{name: raise the version, run: echo 2 > version.txt}]
        """

    @unchanged
    Scenario Outline: <code>: <what>
      When I run "holdfast <command> --format json"
      Then it ends with exit code <code>
      And the answer is one envelope in json
      And the data has
        | value        | is        |
        | error.type   | <type>    |
      And it says "<words>"
      And nothing has changed

      Examples:
        | code | what                | command                                       | type          | words               |
        | 2    | the call was wrong  | plan rollback --yse latest {start}            | UsageError    | holdfast plan rollback --help |
        | 3    | no such plan        | plan status 7ZZZZZZZ                          | NotFoundError | holdfast plan list  |
        | 4    | not in that state   | plan rollback --yes latest {start}            | StateError    | rollback_enabled    |
        | 9    | a setting is wrong  | plan list --config step.timeout=soon          | ConfigError   | step.timeout        |
