*** Settings ***
Documentation     Work that is left alone: divided, stopped, cut short, kept inside, and any program without a plan file.
Resource          story.resource
Test Setup        Begin
Test Teardown     Remove The Scratch Project

*** Test Cases ***
Two Parts Disagree, A Person Resolves It In The Sandbox, And It Is Applied
    ${before}=    Fingerprint Of Repository
    ${file}=    Take Plan    same_line
    ${stopped}=    Holdfast Json    plan    execute    ${file}    expected=${5}
    Should Be Equal    ${stopped}[state]    constrained
    ${conflict}=    Set Variable    ${stopped}[conflicts][0]
    Should Be Equal    ${conflict}[path]    version.txt
    ${left}=    Read File    ${conflict}[kept][0]
    ${right}=    Read File    ${conflict}[kept][1]
    Should Be Equal    ${left}${right}    left\nright\n
    Holdfast    plan    apply    --yes    latest    expected=${4}
    ${refused}=    Holdfast    plan    resume    latest    expected=${5}
    Should Contain    ${refused}    ${conflict}[sandbox_file]
    Write File    ${conflict}[sandbox_file]    both\n
    Holdfast    plan    resume    latest
    ${again}=    Fingerprint Of Repository
    Should Be Equal    ${again}    ${before}
    Holdfast    plan    apply    --yes    latest
    ${seen}=    Read File    app/seen.txt
    Should Be Equal    ${seen}    both\n
    ${names}=    Git    ls-files
    Should Be Equal    ${names}    .gitignore\nleft.txt\nright.txt\nseen.txt\nversion.txt

A Running Plan Is Cancelled From Elsewhere, Resumed And Applied
    ${file}=    Take Plan    slow_step
    Start Holdfast    plan    execute    ${file}
    Wait For File    outside/started
    Holdfast    plan    cancel    latest
    Wait For Holdfast    expected=${130}
    ${status}=    Holdfast Json    plan    status
    Should Be Equal    ${status}[state]    cancelled
    Should Be Equal As Integers    ${status}[last_completed_step]    0
    Write File    outside/gate    open
    ${ended}=    Holdfast Json    plan    resume    latest
    Should Be Equal    ${ended}[state]    complete
    Holdfast    plan    apply    --yes    latest
    ${slow}=    Read File    app/slow.txt
    Should Be Equal    ${slow}    2\n

A Step That Reaches Out Is Held Back, And The Advice It Gets Works
    Skip Without Landlock
    Evaluate    os.mkdir($folder)    os
    ${file}=    Take Plan    reaches_out
    ${refused}=    Holdfast    plan    execute    ${file}    expected=${1}
    File Should Not Exist    ${folder}/new
    Should Contain    ${refused}    writing ${folder}/new was refused
    ${advice}=    Evaluate    shlex.split(re.search('\`holdfast (config set .*)\`', $refused)[1])    shlex, re
    Holdfast    @{advice}
    Holdfast    plan    execute    latest
    ${new}=    Read File    ${folder}/new
    Should Be Equal    ${new}    x\n
    ${status}=    Holdfast Json    plan    status
    Should Contain    ${status}[outside_of_rollback]    ${folder}

What Was Done Outside Is Undone Last First When The Plan Fails, And Done Again
    ${file}=    Take Plan    sends
    Holdfast    plan    execute    ${file}    expected=${1}
    ${log}=    Read File    outside/log
    Should Be Equal    ${log}    book\npay\nrefund\ncancel\n
    ${status}=    Holdfast Json    plan    status
    Should Be Equal As Integers    ${status}[last_completed_step]    -1
    Write File    outside/gate    open
    Holdfast    plan    execute    latest
    ${log}=    Read File    outside/log
    Should Be Equal    ${log}    book\npay\nrefund\ncancel\nbook\npay\n

The Policy Is Kept To: Triggers, Retries, Validation
    ${file}=    Take Plan    three_ways
    ${failed}=    Holdfast Json    plan    execute    ${file}    expected=${1}
    Should Be Equal    ${failed}[steps][0][state]    succeeded
    Should Be Equal As Integers    ${failed}[steps][0][try_number]    3
    ${tries}=    Read File    outside/tries
    Should Be Equal    ${tries}    x\nx\nx\n
    ${app}=    Sandbox Of    app
    ${clean}=    Read File    ${app}/tries.txt
    Should Be Equal    ${clean}    x\n
    ${listed}=    Holdfast Json    checkpoint    list
    ${triggers}=    Evaluate    sorted({each for row in $listed['checkpoints'] for each in row['triggers']})
    Should Be Equal    ${triggers}    ${{['before_step', 'on_error', 'on_tool_write_complete', 'pre_execute', 'rollback']}}
    Holdfast    plan    apply    --yes    latest    expected=${4}
    Write File    outside/gate    open
    Holdfast    plan    execute    latest
    Holdfast    plan    apply    --yes    latest

Any Program Is Run, Its Good Moment Is Brought Back, And That Is Applied
    ${before}=    Fingerprint Of Repository
    ${wreck}=    Catenate    SEPARATOR=;
    ...    echo good > good.txt    until test -e "${project}/outside/gate"    do sleep 0.05    done
    ...    rm good.txt version.txt    exit 3
    Start Holdfast    run    --settle    100ms    --    sh    -c    ${wreck}
    ${rest}=    Wait Until Keyword Succeeds    60 s    0.1 s    Checkpoint Of Rest
    Write File    outside/gate    open
    Wait For Holdfast    expected=${3}
    ${again}=    Fingerprint Of Repository
    Should Be Equal    ${again}    ${before}
    Holdfast    plan    rollback    --yes    --only    app:.    latest    ${rest}
    Holdfast    plan    execute    latest
    Holdfast    plan    apply    --yes    latest
    ${good}=    Read File    app/good.txt
    Should Be Equal    ${good}    good\n
    ${version}=    Read File    app/version.txt
    Should Be Equal    ${version}    1\n

An Agent Deletes The Docs And Goes On, The Moment Before Is Found By Its Name, Another Goes On, And Its Commits Are Applied
    Holdfast    run    --name    write the docs    --    sh    -c    mkdir docs; echo page > docs/page.txt
    Holdfast    plan    apply    --yes    latest
    ${before}=    Fingerprint Of Repository
    ${work}=    Catenate    SEPARATOR=;
    ...    echo fixed > fix.txt    echo scratch > scratch.txt    git add .    git commit --quiet -m "fix it"
    ...    until test -e "${project}/outside/gate"    do sleep 0.05    done
    ...    rm -r docs    git commit --quiet --all -m "tidy up"    echo worse > fix.txt    exit 3
    Start Holdfast    run    --name    fix it    --settle    100ms    --    sh    -c    ${work}
    Wait Until Keyword Succeeds    60 s    0.1 s    Checkpoint Of Rest
    Write File    outside/gate    open
    Wait For Holdfast    expected=${3}
    ${listed}=    Holdfast Json    plan    list
    Should Be Equal    ${listed}[plans][0][name]    fix it
    Should Be Equal As Integers    ${listed}[plans][0][program_exit_code]    3
    ${good}=    Moment Before    tidy up
    ${kept}=    Holdfast Json    plan    keep    --yes    ${good}
    Should Be Equal    ${kept}[post_rollback_state][state]    complete
    Holdfast    plan    rollback    --yes    latest    ${kept}[left_checkpoint_id]
    ${test}=    Catenate    SEPARATOR=;
    ...    cat docs/page.txt fix.txt    echo ok > tests.txt    git add tests.txt    git commit --quiet -m "test it"
    ${said}=    Holdfast    run    --yes    --in    latest    --at    ${good}    --    sh    -c    ${test}
    Should Contain    ${said}    page\nfixed\n
    Holdfast    plan    rollback    --yes    --only    scratch.txt    latest    start
    Holdfast    plan    execute    latest
    ${again}=    Fingerprint Of Repository
    Should Be Equal    ${again}    ${before}
    Holdfast    plan    apply    --yes    -m    without scratch    latest
    ${titles}=    Git    log    -3    --format=%s
    Should Be Equal    ${titles}    without scratch\ntest it\nfix it
    File Should Not Exist    app/scratch.txt
    ${fix}=    Read File    app/fix.txt
    ${tests}=    Read File    app/tests.txt
    ${page}=    Read File    app/docs/page.txt
    Should Be Equal    ${fix}${tests}${page}    fixed\nok\npage\n
    Holdfast    plan    unapply    --yes    latest
    File Should Not Exist    app/fix.txt
    ${titles}=    Git    log    -1    --format=%s
    Should Be Equal    ${titles}    write the docs

The Files That Git Ignores Are There, And Stay Mine Until They Are Asked For
    Write File    app/server.log    mine\n
    Holdfast    run    --    sh    -c    cat server.log > seen.txt; echo new > server.log
    Holdfast    plan    apply    --yes    latest
    ${seen}=    Read File    app/seen.txt
    ${log}=    Read File    app/server.log
    Should Be Equal    ${seen}${log}    mine\nmine\n
    Holdfast    plan    unapply    --yes    latest
    Holdfast    plan    apply    --yes    --include-ignored    *.log    latest
    ${log}=    Read File    app/server.log
    Should Be Equal    ${log}    new\n

*** Keywords ***
Begin
    ${made}=    Make A Scratch Project
    Set Test Variable    ${project}    ${made}
    Set Test Variable    ${folder}    ${made}/elsewhere
