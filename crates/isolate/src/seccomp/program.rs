//! Puts a filter together as a search tree.
//!
//! When a filter is loaded, the kernel walks it once for every system call there is. Through a list
//! that is a hundred steps each, which was a tenth of the work of a whole execution; through a
//! tree it is eight.

use std::collections::BTreeMap;

/// One instruction of the kernel's classic packet filter machine, as it is in memory.
type Instruction = [u8; 8];

const LOAD_WORD: u16 = 0x20;
const JUMP: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const JUMP_IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

/// Where `struct seccomp_data` has the number and the architecture of a call.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;

#[cfg(target_arch = "x86_64")]
const OURS: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OURS: u32 = 0xc000_00b7;

/// What the kernel does with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Allow,
    Fail(i32),
    KillProcess,
}

/// What becomes of a call: the answer of the first check that holds, or the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    checks: Vec<Check>,
    otherwise: Answer,
}

/// Tests of the low half of arguments, of which all must hold. The high half counts nowhere that we look: the kernel
/// takes all of these as 32 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Check {
    tests: Vec<(u32, Test)>,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Is(u32),
    IsNot(u32),
    HasAnyOf(u32),
    /// At most 200 values: further than 255 instructions a jump does not reach.
    IsOneOf(&'static [u32]),
}

impl From<Answer> for Verdict {
    fn from(otherwise: Answer) -> Self {
        Self { checks: Vec::new(), otherwise }
    }
}

impl Verdict {
    /// Adds a check. It comes after those that are there.
    pub(super) fn when(self, argument: u32, test: Test, answer: Answer) -> Self {
        self.when_all(&[(argument, test)], answer)
    }

    /// Adds a check of several arguments.
    pub(super) fn when_all(mut self, tests: &[(u32, Test)], answer: Answer) -> Self {
        self.checks.push(Check { tests: tests.to_vec(), answer });
        self
    }

    fn compile(&self) -> Vec<Instruction> {
        let mut program: Vec<Instruction> = self.checks.iter().flat_map(Check::compile).collect();
        program.push(self.otherwise.compile());
        program
    }
}

impl Check {
    /// A test that does not hold jumps behind the answer. So the program is written from its end.
    fn compile(&self) -> Vec<Instruction> {
        let mut program = vec![self.answer.compile()];
        for (argument, test) in self.tests.iter().rev() {
            let past = u8::try_from(program.len()).unwrap_or(u8::MAX);
            let low_half = if cfg!(target_endian = "little") { 0 } else { 4 };
            let mut tested = vec![instruction(LOAD_WORD, 0, 0, 16 + 8 * argument + low_half)];
            tested.extend(test.compile(past));
            tested.append(&mut program);
            program = tested;
        }
        program
    }
}

impl Test {
    /// Goes on behind itself if it holds, and else so much further.
    fn compile(self, past: u8) -> Vec<Instruction> {
        match self {
            Self::Is(value) => vec![instruction(JUMP_IF_EQUAL, 0, past, value)],
            Self::IsNot(value) => vec![instruction(JUMP_IF_EQUAL, past, 0, value)],
            Self::HasAnyOf(bits) => vec![instruction(JUMP_IF_ANY_BIT, 0, past, bits)],
            Self::IsOneOf(values) => {
                let after = (0..values.len()).rev();
                let jumps = values.iter().zip(after).map(|(value, after)| {
                    let if_not = if after == 0 { past } else { 0 };
                    let to_end = u8::try_from(after).unwrap_or(u8::MAX);
                    instruction(JUMP_IF_EQUAL, to_end, if_not, *value)
                });
                jumps.collect()
            }
        }
    }
}

impl Answer {
    fn compile(self) -> Instruction {
        let value = match self {
            Self::Allow => libc::SECCOMP_RET_ALLOW,
            Self::Fail(errno) => libc::SECCOMP_RET_ERRNO | errno.unsigned_abs(),
            Self::KillProcess => libc::SECCOMP_RET_KILL_PROCESS,
        };
        instruction(RETURN, 0, 0, value)
    }
}

/// Compiles a filter that has a verdict for each of these numbers, and one for all others. A call
/// of another architecture ends the process.
pub(super) fn compile(verdicts: &BTreeMap<u32, Verdict>, others: &Verdict) -> Vec<u8> {
    let mut program = vec![
        instruction(LOAD_WORD, 0, 0, ARCHITECTURE),
        instruction(JUMP_IF_EQUAL, 1, 0, OURS),
        Answer::KillProcess.compile(),
        instruction(LOAD_WORD, 0, 0, NUMBER),
    ];
    program.extend(search(&ranges(verdicts, others)));
    program.concat()
}

/// Cuts the numbers into ranges with the same verdict, each given by its first number.
fn ranges<'a>(
    verdicts: &'a BTreeMap<u32, Verdict>,
    others: &'a Verdict,
) -> Vec<(u32, &'a Verdict)> {
    let mut ranges = vec![(0, others)];
    for (number, verdict) in verdicts {
        // What follows belongs to the others, until the next number says otherwise.
        for (first, verdict) in [(*number, verdict), (number + 1, others)] {
            ranges.pop_if(|(last, _)| *last == first);
            if ranges.last().is_none_or(|(_, last)| *last != verdict) {
                ranges.push((first, verdict));
            }
        }
    }
    ranges
}

fn search(ranges: &[(u32, &Verdict)]) -> Vec<Instruction> {
    let (below, above) = ranges.split_at(ranges.len() / 2);
    let Some((first_above, verdict)) = above.first() else { return Vec::new() };
    if below.is_empty() {
        return verdict.compile();
    }
    let below = search(below);
    // A conditional jump reaches no further than 255 instructions.
    let mut program = match u8::try_from(below.len()) {
        Ok(distance) => vec![instruction(JUMP_IF_AT_LEAST, distance, 0, *first_above)],
        Err(_) => vec![
            instruction(JUMP_IF_AT_LEAST, 0, 1, *first_above),
            instruction(JUMP, 0, 0, u32::try_from(below.len()).unwrap_or(u32::MAX)),
        ],
    };
    program.extend(below);
    program.extend(search(above));
    program
}

fn instruction(code: u16, if_true: u8, if_false: u8, value: u32) -> Instruction {
    let [code_0, code_1] = code.to_ne_bytes();
    let [v_0, v_1, v_2, v_3] = value.to_ne_bytes();
    [code_0, code_1, if_true, if_false, v_0, v_1, v_2, v_3]
}
