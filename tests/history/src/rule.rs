//! What is promised, by name.

/// A promise. The page beside this crate explains each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    RecordingIsWhole,
    EveryoneSeesTheSame,
    SequencesAreWhole,
    SandboxesEndOnce,
    ExecsEndOnce,
    PhasesAreLegal,
    UnknownIsOnceOrNever,
    AcknowledgedIsKept,
    RefusalsAreTrue,
    ReadsNeverGoBack,
    StateIsTheSum,
    SnapshotsComeFirst,
    ConnectionsEndForAReason,
    EverythingEnds,
    EndsAreTrue,
    CompanionsHaveOneOutcome,
    OutputIsWhole,
    SandboxesOutliveTheServer,
    OneServerAtATime,
    NoGhosts,
    NoPhantoms,
}

impl Rule {
    pub const ALL: [Self; 21] = [
        Self::RecordingIsWhole,
        Self::EveryoneSeesTheSame,
        Self::SequencesAreWhole,
        Self::SandboxesEndOnce,
        Self::ExecsEndOnce,
        Self::PhasesAreLegal,
        Self::UnknownIsOnceOrNever,
        Self::AcknowledgedIsKept,
        Self::RefusalsAreTrue,
        Self::ReadsNeverGoBack,
        Self::StateIsTheSum,
        Self::SnapshotsComeFirst,
        Self::ConnectionsEndForAReason,
        Self::EverythingEnds,
        Self::EndsAreTrue,
        Self::CompanionsHaveOneOutcome,
        Self::OutputIsWhole,
        Self::SandboxesOutliveTheServer,
        Self::OneServerAtATime,
        Self::NoGhosts,
        Self::NoPhantoms,
    ];

    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// Returns the ids of the invariants behind it.
    pub const fn invariants(self) -> &'static str {
        self.row().1
    }

    /// Returns the promise in one sentence.
    pub const fn promise(self) -> &'static str {
        self.row().2
    }

    const fn row(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::RecordingIsWhole => (
                "recording_is_whole",
                "none: the recorder's own",
                "entries stand in the order of their ends and fit together",
            ),
            Self::EveryoneSeesTheSame => {
                ("everyone_sees_the_same", "I1, I5", "a sequence has one content, whoever reads it")
            }
            Self::SequencesAreWhole => (
                "sequences_are_whole",
                "I5",
                "a subscription from N gets N+1, N+2, … without gap, repeat, disorder or silence",
            ),
            Self::SandboxesEndOnce => {
                ("sandboxes_end_once", "I4", "a sandbox is deleted once, and nothing follows")
            }
            Self::ExecsEndOnce => {
                ("execs_end_once", "I4", "an exec starts, ends once, and nothing of it follows")
            }
            Self::PhasesAreLegal => {
                ("phases_are_legal", "I4, I6", "events come in an order that a life can have")
            }
            Self::UnknownIsOnceOrNever => (
                "unknown_is_once_or_never",
                "I8, I9",
                "what was asked for happened at most once, and what nobody asked for did not",
            ),
            Self::AcknowledgedIsKept => (
                "acknowledged_is_kept",
                "I1, I22",
                "what was acknowledged is in every later answer, for ever",
            ),
            Self::RefusalsAreTrue => (
                "refusals_are_true",
                "I1, I8, I20",
                "a refused call had no effect, and the reason given was so",
            ),
            Self::ReadsNeverGoBack => (
                "reads_never_go_back",
                "I1, I6",
                "an answer is never older than what somebody was shown before it was asked for",
            ),
            Self::StateIsTheSum => (
                "state_is_the_sum",
                "I6",
                "a state told with sequence N is what the events up to N add up to",
            ),
            Self::SnapshotsComeFirst => (
                "snapshots_come_first",
                "I6",
                "a snapshot is marked, comes first, and is the state as of its sequence",
            ),
            Self::ConnectionsEndForAReason => (
                "connections_end_for_a_reason",
                "I5, I17, I20",
                "a connection breaks by a kill, a stream ends after the last event or out of range",
            ),
            Self::EverythingEnds => (
                "everything_ends",
                "I3, I4",
                "at the end of the run every exec has its end and no sandbox is on its way",
            ),
            Self::EndsAreTrue => (
                "ends_are_true",
                "I4, I8, I22",
                "an exec ends with the exit code of its command, or for a reason that was given",
            ),
            Self::CompanionsHaveOneOutcome => (
                "companions_have_one_outcome",
                "I4, I22",
                "a start of a sandbox tells of each companion once; one that was ready may fail",
            ),
            Self::OutputIsWhole => {
                ("output_is_whole", "I7", "what a command printed is there, byte by byte")
            }
            Self::SandboxesOutliveTheServer => (
                "sandboxes_outlive_the_server",
                "I22",
                "a kill of the server fails no sandbox and changes no pid",
            ),
            Self::OneServerAtATime => (
                "one_server_at_a_time",
                "I11",
                "once a later life of the server has answered, an earlier one does not",
            ),
            Self::NoGhosts => (
                "no_ghosts",
                "I2, I19",
                "5 s after the server is ready the machine has nothing that no record explains",
            ),
            Self::NoPhantoms => (
                "no_phantoms",
                "I3",
                "5 s after the server is ready no record lives without processes",
            ),
        }
    }
}
