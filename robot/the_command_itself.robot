*** Settings ***
Documentation     Configuration, formats, help, and the demonstration.
Resource          story.resource
Library           Collections
Test Setup        Make A Scratch Project
Test Teardown     Remove The Scratch Project

*** Test Cases ***
A Setting Is Set, Seen, Used And Unset
    Holdfast    config    set    sandbox.checkpoint.max-checkpoints-per-plan    4
    ${value}=    Holdfast Json    config    get    sandbox.checkpoint.max-checkpoints-per-plan
    Should Be Equal As Integers    ${value}[value]    4
    ${file}=    Take Plan    five_steps
    Holdfast    plan    execute    ${file}
    ${listed}=    Holdfast Json    checkpoint    list
    Should Be True    len($listed['checkpoints']) <= 4
    Holdfast    config    unset    sandbox.checkpoint.max-checkpoints-per-plan
    ${value}=    Holdfast Json    config    get    sandbox.checkpoint.max-checkpoints-per-plan
    Should Be Equal As Integers    ${value}[value]    50
    ${said}=    Holdfast    config    set    sandbox.checkpoint.auto-create-on    on_tool_writ    expected=${9}
    Should Contain    ${said}    on_tool_write

A Wrong Plan File Is Refused With Its Line
    ${file}=    Take Plan    wrong_key
    ${said}=    Holdfast    plan    create    ${file}    expected=${2}
    Should Contain    ${said}    wrong_key.yaml:5
    ${plans}=    Holdfast Json    plan    list
    Should Be Empty    ${plans}[plans]

The Schema Of Plan Files Is Printed
    ${schema}=    Holdfast Json    plan    schema
    Dictionary Should Contain Key    ${schema}[schema][properties]    steps

The Demonstration Tells Its Story And Leaves Nothing
    ${said}=    Holdfast    demo
    Should Contain    ${said}    holdfast plan rollback
    Should Contain    ${said}    Applied.
    Folder Should Hold    temporary

The Demonstration Can Be Kept To Look Around
    ${demo}=    Holdfast Json    demo    --keep
    Folder Should Hold    ${demo}[folder]    fixed.yaml    home    orders    plan.yaml    shop
    ${log}=    Evaluate    subprocess.check_output(['git', '-C', $demo['folder'] + '/shop', 'log', '--format=%s'], text=True)    subprocess
    Should Be Equal    ${log}    raise the rate to 21 %\nthe shop as it is\n
