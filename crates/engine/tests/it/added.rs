//! Languages that the operator adds.

use engine::{
    Settings,
    languages::{Languages, added::Added},
};
use model::{
    execution::{Execution, Exit, Freshness},
    units::ByteSize,
};

use crate::node::{Node, python};

fn perl() -> Added {
    let part = |text: &str| text.to_owned();
    Added {
        name: part("perl"),
        command: vec![part("/usr/bin/perl"), part("-w"), part("{file}"), part("code={file}")],
        file: part("main.pl"),
        env: vec![(part("USER"), part("camel")), (part("HUMPS"), part("1"))],
        min_memory: ByteSize::mib(16),
        pool_size: 1,
    }
}

async fn node() -> Node {
    let languages = Languages::installed().only(&[]).with(perl()).unwrap();
    Node::start_with(Settings { languages, ..Settings::default() }).await
}

fn execution(code: &str, freshness: Freshness) -> Execution {
    Execution { language: "perl".into(), freshness, ..python(code) }
}

#[tokio::test]
async fn an_added_language_gets_its_code_arguments_stdin_and_variables() {
    let node = node().await;
    let code = "print \"$0 @ARGV $ENV{USER} $ENV{HUMPS} $ENV{HOME} $ENV{OWN}\\n\", <STDIN>; exit 3";
    for freshness in [Freshness::Shared, Freshness::Strict] {
        let execution = Execution {
            stdin: "in\n".into(),
            env: vec![("HUMPS".into(), "2".into()), ("OWN".into(), "x".into())],
            ..execution(code, freshness)
        };
        let seen = node.run(execution).await;
        let expected = "/workspace/main.pl code=/workspace/main.pl camel 2 /home/agbox x\nin\n";
        assert_eq!((seen.out(), seen.err()), (expected, ""));
        assert_eq!(seen.outcome.exit, Some(Exit::Code(3)));
    }
}

#[tokio::test]
async fn an_added_language_tells_its_own_errors() {
    let node = node().await;
    let seen = node.run(execution("print 1 +;", Freshness::Shared)).await;
    assert!(seen.err().starts_with("syntax error at /workspace/main.pl line 1"), "{}", seen.err());
    assert_eq!(seen.outcome.exit, Some(Exit::Code(255)));
}
