//! Files of real sandboxes, through the processes inside that open them.

use engine::sandboxes::files::{Breadth, Depth, FileError, Files, Links, Onto, Parents, Place};
use model::{
    file::{Condition, FileEvent, FileKind, FileStat, Occurrences, Tags},
    life::Phase,
    path::CleanPath,
    sandbox::{Sandbox, WhenStopped},
    spec::{Resources, SandboxSpec},
    units::ByteSize,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::home::{Home, Server, host, tenant};

fn at(path: &str) -> Place {
    Place::new("/", CleanPath::read(path.as_bytes(), "/workspace").unwrap()).unwrap()
}

fn confined(folder: &str, path: &str) -> Place {
    Place::new(folder, CleanPath::read(path.as_bytes(), "/").unwrap()).unwrap()
}

fn any() -> Condition {
    Condition::default()
}

fn is_absent() -> Condition {
    Condition { is: None, is_not: Some(Tags::Any) }
}

async fn files(server: &Server, sandbox: &Sandbox) -> Files {
    let name = sandbox.id.as_str();
    server.sandboxes.files(&tenant(), name, WhenStopped::Resume).await.unwrap()
}

async fn write(
    files: &Files,
    path: &str,
    text: &str,
    condition: &Condition,
) -> Result<FileStat, FileError> {
    let mut writing = files.write(&at(path), condition, Parents::Make).await?;
    writing.write(text.to_owned()).await?;
    writing.commit(None).await
}

async fn read(files: &Files, path: &str) -> Result<String, FileError> {
    let bytes = files.open(&at(path)).await?.read_whole(1 << 20).await?;
    Ok(String::from_utf8(bytes).unwrap())
}

#[tokio::test]
async fn files_are_written_and_read_with_the_rights_of_the_sandboxs_user() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let files = files(&server, &sandbox).await;
    let stat = write(&files, "/workspace/a/b.txt", "hello", &is_absent()).await.unwrap();
    assert_eq!((stat.kind, stat.size, stat.mode, stat.user), (FileKind::File, 5, 0o644, 1000));
    assert_eq!(read(&files, "/workspace/a/b.txt").await.unwrap(), "hello");
    assert_eq!(files.stat(&at("/workspace/a/b.txt"), Links::Keep).await.unwrap(), stat);
    let (_, seen) = server.run(&sandbox, "cat /workspace/a/b.txt; stat -c %U /workspace/a").await;
    assert_eq!(seen, "helloagbox\n");
    // What commands write is seen, and what they may not do may not be done through this either.
    server.run(&sandbox, "echo more > /workspace/c; chmod 444 /workspace/c").await;
    assert_eq!(read(&files, "/workspace/c").await.unwrap(), "more\n");
    for path in ["/workspace/c", "/usr/bin/x", "/etc/passwd", "/proc/1/comm"] {
        let refused = write(&files, path, "x", &any()).await;
        assert!(matches!(refused, Err(FileError::Denied)), "{path}: {refused:?}");
    }
    for path in ["/proc/version", "/dev/null", "/proc/self/root/etc/passwd", "/dev/stdin"] {
        let refused = read(&files, path).await;
        let is_refused = matches!(refused, Err(FileError::NotRegular | FileError::Loop));
        assert!(is_refused, "{path}: {refused:?}");
    }
    assert!(matches!(read(&files, "/workspace/none").await, Err(FileError::NotFound)));
    assert!(matches!(read(&files, "/workspace").await, Err(FileError::IsDirectory)));
    let another: Result<Files, _> = server
        .sandboxes
        .files(&"other".parse().unwrap(), sandbox.id.as_str(), WhenStopped::Refuse)
        .await;
    assert!(matches!(another, Err(FileError::Sandbox(_))), "{another:?}");
    server.end().await;
}

#[tokio::test]
async fn a_link_inside_means_the_sandboxs_own_root_and_never_leaves_a_confinement() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let files = files(&server, &sandbox).await;
    let script = "mkdir -p /workspace/in /workspace/out; echo s > /workspace/out/secret
        ln -s /etc/hostname /workspace/in/absolute; ln -s ../out /workspace/in/up
        ln -s /workspace/out/secret /workspace/in/secret";
    server.run(&sandbox, script).await;
    assert_eq!(read(&files, "/workspace/in/secret").await.unwrap(), "s\n");
    for path in ["absolute", "up/secret", "secret"] {
        let place = confined("/workspace/in", &format!("/workspace/in/{path}"));
        let refused = files.open(&place).await;
        assert!(matches!(refused, Err(FileError::Outside)), "{path}: {refused:?}");
        let refused = files.write(&place, &any(), Parents::Make).await;
        let is_refused = matches!(refused, Err(FileError::Outside | FileError::Symlink));
        assert!(is_refused, "{path}: {refused:?}");
    }
    assert!(
        Place::new("/workspace/in", CleanPath::read(b"/workspace/out/x", "/").unwrap()).is_none()
    );
    server.end().await;
}

#[tokio::test]
async fn of_many_writers_of_one_version_exactly_one_wins() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let files = files(&server, &sandbox).await;
    let first = write(&files, "/workspace/a", "0", &any()).await.unwrap();
    let writers = (0..8).map(|number| {
        let (files, tag) = (files.clone(), first.tag.clone());
        async move { write(&files, "/workspace/a", &number.to_string(), &Condition::is(&tag)).await }
    });
    let ends = futures_util::future::join_all(writers).await;
    let won: Vec<_> = ends.iter().filter_map(|end| end.as_ref().ok()).collect();
    assert_eq!(won.len(), 1, "{ends:?}");
    for end in &ends {
        match end {
            Ok(_) => {}
            Err(FileError::Precondition { current }) => assert!(current.is_some()),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert_eq!(files.stat(&at("/workspace/a"), Links::Keep).await.unwrap().tag, won[0].tag);
    let (_, left) = server.run(&sandbox, "ls -A /workspace").await;
    assert_eq!(left, "a\n");
    server.end().await;
}

#[tokio::test]
async fn names_are_made_moved_edited_found_and_removed() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let files = files(&server, &sandbox).await;
    files.make_directory(&at("d/e"), Parents::Make, None).await.unwrap();
    let refused = files.make_directory(&at("d"), Parents::Need, None).await;
    assert!(matches!(refused, Err(FileError::Exists)), "{refused:?}");
    write(&files, "d/one.py", "x = 1\ny = 1\n", &any()).await.unwrap();
    let (place, condition) = (at("d/one.py"), any());
    let edit = |texts, which| files.edit(&place, texts, which, &condition);
    let refused = edit([b"1", b"2"], Occurrences::One).await;
    assert!(matches!(refused, Err(FileError::Edit(_))), "{refused:?}");
    let (_, count) = edit([b"1", b"2"], Occurrences::All).await.unwrap();
    assert_eq!((count, read(&files, "d/one.py").await.unwrap().as_str()), (2, "x = 2\ny = 2\n"));
    files.rename(&at("d/one.py"), &at("d/e/two.py"), &any(), Onto::Nothing).await.unwrap();
    let found = files.glob(&at("/workspace"), vec![b"**/*.py".to_vec()], 10).await.unwrap();
    let paths: Vec<_> = found.found.iter().map(|entry| entry.path.as_slice()).collect();
    assert_eq!((paths, found.is_cut), (vec![b"d/e/two.py".as_slice()], false));
    let lines = files.grep(&at("/workspace"), b"y =".to_vec(), Vec::new(), 10).await.unwrap();
    let lines: Vec<_> =
        lines.found.iter().map(|line| (line.number, line.text.as_slice())).collect();
    assert_eq!(lines, [(2, b"y = 2".as_slice())]);
    let page = files.list(&at("d"), None, 10).await.unwrap();
    assert_eq!((page.entries.len(), page.next), (1, None));
    let refused = files.remove(&at("d"), Depth::One, &any()).await;
    assert!(matches!(refused, Err(FileError::NotEmpty)), "{refused:?}");
    files.remove(&at("d"), Depth::All, &any()).await.unwrap();
    assert!(matches!(files.stat(&at("d"), Links::Keep).await, Err(FileError::NotFound)));
    server.end().await;
}

#[tokio::test]
async fn whoever_watches_is_told_what_commands_do() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let files = files(&server, &sandbox).await;
    let watching = files.watch(&at("/workspace"), Breadth::All).await.unwrap();
    server.run(&sandbox, "mkdir -p d; echo x > d/a").await;
    let wanted = FileEvent::Created { path: b"d/a".to_vec(), is_directory: false };
    while !watching.next().await.unwrap().unwrap().contains(&wanted) {}
    server.end().await;
}

/// Files are there whatever the sandbox is doing; a stopped one is resumed only if it is to be.
#[tokio::test]
async fn a_stopped_sandbox_is_resumed_for_its_files_if_it_is_to_be() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let files = files(&server, &sandbox).await;
    write(&files, "/workspace/a", "kept", &any()).await.unwrap();
    let name = sandbox.id.as_str();
    server.sandboxes.stop(&tenant(), name).await.unwrap();
    server.until(name, Phase::Stopped).await;
    let refusing = server.sandboxes.files(&tenant(), name, WhenStopped::Refuse).await.unwrap();
    assert!(matches!(read(&refusing, "/workspace/a").await, Err(FileError::Sandbox(_))));
    assert_eq!(read(&files, "/workspace/a").await.unwrap(), "kept");
    server.end().await;
}

/// Whoever is in the sandbox may end the processes that work on its files, and harms only himself.
/// Kills every process in a sandbox but its supervisor, as the kernel does when memory runs out. Nothing inside can.
async fn kill_agents(home: &Home, server: &Server, sandbox: &Sandbox) {
    let supervisor = home.supervisor_of(sandbox.id.as_str());
    let path = format!("/proc/{supervisor}/task/{supervisor}/children");
    for child in std::fs::read_to_string(path).unwrap().split_whitespace() {
        let child = Pid::from_raw(child.parse().unwrap()).unwrap();
        // It may have ended meanwhile.
        let _ = kill_process(child, Signal::KILL);
    }
    // With its end it is known to be gone.
    server.run(sandbox, "true").await;
}

#[tokio::test]
async fn an_agent_that_was_killed_is_replaced() {
    let home = Home::new();
    let server = home.start().await;
    let sandbox = server.ready().await;
    let files = files(&server, &sandbox).await;
    write(&files, "/workspace/a", "x", &any()).await.unwrap();
    for _ in 0..5 {
        kill_agents(&home, &server, &sandbox).await;
        assert_eq!(read(&files, "/workspace/a").await.unwrap(), "x");
    }
    // Of what was being written nothing is left.
    let mut writing = files.write(&at("/workspace/b"), &any(), Parents::Need).await.unwrap();
    writing.write("half").await.unwrap();
    kill_agents(&home, &server, &sandbox).await;
    assert!(matches!(writing.commit(None).await, Err(FileError::Lost)));
    let (_, left) = server.run(&sandbox, "ls -A /workspace").await;
    assert_eq!(left, "a\n");
    server.end().await;
}

/// P13: a full disk is said to be full, what was there stays, and nothing is left of what was too much.
#[tokio::test]
async fn p13_a_full_disk_is_told_and_leaves_what_was_there() {
    const LIMIT: u64 = 64 << 20;
    let home = Home::new();
    let server = home.start().await;
    harness::needs::require("root", server.has_disk_limits().await);
    let resources = Resources { disk: Some(ByteSize::bytes(LIMIT)), ..Resources::default() };
    let spec = SandboxSpec { resources, ..host() };
    let sandbox = server.sandboxes.create(&tenant(), None, spec).await.unwrap();
    let sandbox = server.until(sandbox.id.as_str(), Phase::Active).await;
    let files = files(&server, &sandbox).await;
    write(&files, "/workspace/a", "before", &any()).await.unwrap();
    let mut writing = files.write(&at("/workspace/a"), &any(), Parents::Need).await.unwrap();
    let full = async {
        for _ in 0..200 {
            writing.write(vec![7; 1 << 20]).await?;
        }
        writing.commit(None).await
    };
    let full = full.await;
    assert!(matches!(full, Err(FileError::NoSpace)), "{full:?}");
    assert_eq!(read(&files, "/workspace/a").await.unwrap(), "before");
    let (_, left) = server.run(&sandbox, "ls -A /workspace").await;
    assert_eq!(left, "a\n");
    server.end().await;
}
