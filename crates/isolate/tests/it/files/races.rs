//! P05: whoever swaps directories for links, and moves them away, while an agent works on them gets
//! nothing out of it.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use super::*;

/// How often each thing is tried. They are 110,000 tries in all.
const TRIES: usize = 22_000;

/// Swaps as fast as it can until it is told to stop.
struct Swapper {
    is_over: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Swapper {
    fn begin(inside: &Path, outside: &Path) -> Self {
        let (is_over, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let run = |swap: fn(&Path, &Path)| {
            let (inside, outside) = (inside.to_path_buf(), outside.to_path_buf());
            let (is_over, swaps) = (Arc::clone(&is_over), Arc::clone(&swaps));
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    swap(&inside, &outside);
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = vec![run(swap_for_link), run(move_out)];
        Self { is_over, swaps, threads }
    }

    fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
        self.swaps.load(Ordering::Relaxed)
    }
}

/// A directory becomes a link that leads out, and a directory again.
fn swap_for_link(inside: &Path, _outside: &Path) {
    let (here, aside, link) = (inside.join("d"), inside.join("aside"), inside.join("link"));
    // Whatever the others have done meanwhile: it is tried again.
    let _ = fs::rename(&here, &aside);
    let _ = fs::rename(&link, &here);
    let _ = fs::rename(&here, &link);
    let _ = fs::rename(&aside, &here);
}

/// A directory in which an agent may be goes out of the folder, and comes back.
fn move_out(inside: &Path, outside: &Path) {
    let (here, away) = (inside.join("a/b"), outside.join("away"));
    let _ = fs::rename(&here, &away);
    let _ = fs::rename(&away, &here);
}

#[test]
fn p05_whoever_swaps_directories_for_links_gets_nothing() {
    let agent = Agent::in_memory();
    let (inside, outside) = (agent.inside(), agent.outside());
    fs::create_dir_all(inside.join("d")).unwrap();
    fs::create_dir_all(inside.join("a/b/c")).unwrap();
    fs::write(inside.join("d/file"), "inside").unwrap();
    fs::write(inside.join("a/b/c/file"), "inside").unwrap();
    fs::write(outside.join("file"), "secret").unwrap();
    symlink("../out", inside.join("link")).unwrap();
    // Out of the directory that moves, over two parents: which these are changes on the way.
    symlink("../../../d/file", inside.join("a/b/c/up")).unwrap();
    let swapper = Swapper::begin(&inside, &outside);
    let mut done = 0;
    for number in 0..scaled(TRIES) {
        for path in ["d/file", "a/b/c/file", "a/b/c/up"] {
            match agent.read(path) {
                Ok(bytes) => {
                    assert_eq!(bytes, b"inside", "{path}");
                    done += 1;
                }
                Err(
                    Why::NotFound | Why::Outside | Why::Conflict | Why::NotADirectory | Why::Loop,
                ) => {}
                Err(other) => panic!("{path}: {other:?}"),
            }
        }
        // What is written waits for the disk.
        if number % 40 == 0
            && let Ok(mut file) = agent.begin("d/new", any())
        {
            file.write_all(b"x").unwrap();
            done += usize::from(agent.commit().is_ok());
        }
        let list = Ask::Stat { at: agent.at("d/secret"), follow: true };
        assert!(!matches!(agent.answer(&list), Answer::Stat(_)));
        let remove = Ask::Remove { at: agent.at("d/secret"), recursive: true, condition: any() };
        assert!(!matches!(agent.answer(&remove), Answer::Done(_)));
    }
    let swaps = swapper.end();
    assert!(done > 0 && swaps > 1000, "{done} of the tries came through, against {swaps} swaps");
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "secret");
    let left: Vec<_> = names(&outside).into_iter().filter(|name| name != "away").collect();
    assert_eq!(left, ["file", "secret"]);
}

/// What is in a tree is removed by somebody while others make links in it that lead out.
#[test]
fn p18_whoever_makes_links_in_a_tree_that_is_removed_loses_nothing_else() {
    let agent = Agent::in_memory();
    let (inside, outside) = (agent.inside(), agent.outside());
    let is_over = Arc::new(AtomicBool::new(false));
    let busy = {
        let (inside, outside, is_over) = (inside.clone(), outside.clone(), Arc::clone(&is_over));
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let _ = fs::create_dir_all(inside.join("t/a/b"));
                let _ = fs::rename(inside.join("t/a"), inside.join("t/was"));
                let _ = symlink(&outside, inside.join("t/a"));
                let _ = fs::remove_file(inside.join("t/a"));
                let _ = fs::rename(inside.join("t/was"), inside.join("t/a"));
            }
        })
    };
    for _ in 0..2000 {
        agent.answer(&Ask::Remove { at: agent.at("t"), recursive: true, condition: any() });
    }
    is_over.store(true, Ordering::Relaxed);
    busy.join().unwrap();
    assert_eq!(names(&outside), ["secret"]);
}
