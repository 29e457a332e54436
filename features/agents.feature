@landlock
Feature: Coding agents
  An agent needs its own folders, a few variables and sometimes an option. A profile says which, so that
  "holdfast run -- AGENT" is enough. Nothing else outside of the sandbox can be written.

  Scenario: An agent that is known works as it is, and its own files are there afterwards
    Given the agent "claude" that does
      """
      mkdir -p ~/.claude/projects && echo "we talked" > ~/.claude/projects/session
      mkdir ~/.claude.json.lock && echo "{}" > ~/.claude.json.tmp && mv ~/.claude.json.tmp ~/.claude.json
      rmdir ~/.claude.json.lock
      echo 2 > version.txt
      """
    When I run "holdfast run -- claude -p work" in "shop"
    Then it ends with exit code 0
    And it says "Claude Code: may write ~/.claude, ~/.claude.json"
    And it does not say "refused"
    And my files are untouched
    And in "user" this prints
      """
      $ cat .claude/projects/session .claude.json; ls -A
      we talked
      {}
      .claude
      .claude.json
      .gitconfig
      """

  Scenario: Without its profile, an agent may write only into its sandbox, and the end says what it was refused
    Given the agent "claude" that does
      """
      mkdir ~/.claude; echo 2 > version.txt
      """
    When I run "holdfast run --agent none -- claude" in "shop"
    Then it ends with exit code 0
    And it says "--allow-write {project}/user/.claude"
    When I run "holdfast run --agent none --format json -- claude" in "shop"
    Then the data has
      | value                         | is                       |
      | refused_writes[0].allow_write | "{project}/user/.claude" |
      | agent                         | null                     |

  Scenario: What I allow has to be there before anything is copied
    When I run "holdfast run --allow-write ~/missing -- true" in "shop"
    Then it ends with exit code 2
    And it says "missing does not exist"
    And there is no sandbox

  Scenario: Installing packages uses caches of the plan, not mine
    Given the agent "installer" that does
      """
      mkdir -p "$PIP_CACHE_DIR" && echo wheel > "$PIP_CACHE_DIR/x" && cat "$PIP_CACHE_DIR/x"
      """
    When I run "holdfast run -- installer" in "shop"
    Then it ends with exit code 0
    And it says "wheel"
    And in "user" this prints
      """
      $ ls -A
      .gitconfig
      """
