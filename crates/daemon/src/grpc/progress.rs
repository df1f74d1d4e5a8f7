//! How far images have come, as the contracts show it.

use api::{agbox::v1, ringfence::v1::PullProgress};
use engine::images::Progress;
use model::{event::Sequence, units::Timestamp};

use super::to_wire::{phase, time};

/// Where in a stream a notice of progress stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The last event before it. Its sequence is repeated: a client that goes on from there misses nothing.
    pub(crate) after: Sequence,
    /// How many notices came before it in this stream.
    pub(crate) number: u64,
}

/// Shows how far the images of a sandbox have come. Nothing of it is kept, so that it has no sequence of its own.
pub(crate) fn event(
    progress: &Progress,
    name: &str,
    place: Place,
    at: Timestamp,
) -> v1::SandboxEvent {
    let PullProgress { bytes_done, bytes_total, layers_done, layers_total } = sum(progress);
    let reason =
        format!("{bytes_done} of {bytes_total} bytes, {layers_done} of {layers_total} layers");
    v1::SandboxEvent {
        event_id: format!("{name}-{}-pulling-{}", place.after, place.number),
        sequence: place.after.0,
        sandbox_id: name.to_owned(),
        event_type: v1::EventType::Unspecified.into(),
        occurred_at: Some(time(at)),
        replay: false,
        snapshot: false,
        sandbox_state: v1::SandboxState::Pending.into(),
        details: Some(phase("pulling", reason)),
    }
}

/// Adds up how far the layers of an image have come.
pub(crate) fn sum(progress: &Progress) -> PullProgress {
    let parts = || progress.layers.values();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let add = |sum: u64, bytes: u64| sum.saturating_add(bytes);
    PullProgress {
        bytes_done: parts().map(|part| part.done).fold(0, add),
        bytes_total: parts().map(|part| part.total).fold(0, add),
        layers_done: count(parts().filter(|part| part.done >= part.total).count()),
        layers_total: count(parts().count()),
    }
}

#[cfg(test)]
mod tests {
    use engine::images::{Digest, Part};

    use super::*;

    #[test]
    fn layers_add_up_and_the_event_repeats_the_last_sequence_with_an_id_of_its_own() {
        let layer = |name: &[u8], done, total| (Digest::of(name), Part { done, total });
        let layers = [layer(b"a", 5, 5), layer(b"b", 1, 9), layer(b"c", 0, 0)].into();
        let (progress, at) = (Progress { layers }, Timestamp::from_millis(0));
        let place = Place { after: Sequence(2), number: 7 };
        let shown = event(&progress, "box", place, at);
        assert_eq!((shown.sequence, shown.event_id.as_str()), (2, "box-2-pulling-7"));
        let Some(v1::sandbox_event::Details::SandboxPhase(phase)) = shown.details else {
            panic!("{shown:?}");
        };
        assert_eq!(phase.phase, "pulling");
        assert_eq!(phase.reason, "6 of 14 bytes, 2 of 3 layers");
    }
}
