//! What is counted, under which names.

use std::sync::{Arc, OnceLock};

use api::errors::ErrorCode;
use engine::{PoolLoad, executions::Event};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use model::admission::Load;

use crate::to_wire;

/// The recorder is one per process, as the `metrics` crate has it.
static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Counters at hand, so that counting costs no look-up.
#[derive(Debug)]
pub(crate) struct Metrics {
    recorder: Option<PrometheusHandle>,
    connections: Gauge,
    accepted: Counter,
    output_bytes: Counter,
    duration: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Arc<Self> {
        let recorder = RECORDER.get_or_init(install).clone();
        Arc::new(Self {
            recorder,
            connections: gauge!("ringfence_connections"),
            accepted: counter!("ringfence_executions_accepted_total"),
            output_bytes: counter!("ringfence_output_bytes_total"),
            duration: histogram!("ringfence_execution_seconds"),
        })
    }

    /// Counts an open connection until the answer is dropped.
    pub(crate) fn connection(&self) -> Open {
        self.connections.increment(1);
        Open(self.connections.clone())
    }

    pub(crate) fn accepted(&self) {
        self.accepted.increment(1);
    }

    pub(crate) fn event(&self, event: &Event) {
        match event {
            Event::Started => {}
            Event::Output { data, .. } => {
                self.output_bytes.increment(u64::try_from(data.len()).unwrap_or(u64::MAX));
            }
            Event::Ended(outcome) => {
                let status = to_wire::state(outcome.status).wire_name();
                counter!("ringfence_executions_total", "status" => status).increment(1);
                self.duration.record(outcome.duration.as_secs_f64());
            }
            Event::Broken { .. } => {
                counter!("ringfence_executions_total", "status" => "broken").increment(1);
            }
        }
    }

    /// Forgets samples that were read; to be called now and then, or they pile up.
    pub(crate) fn tidy(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.run_upkeep();
        }
    }

    /// Returns everything in Prometheus' text format.
    pub(crate) fn render(&self, load: Load, pools: &[PoolLoad]) -> String {
        set(&gauge!("ringfence_executions_running"), load.running);
        set(&gauge!("ringfence_executions_queued"), load.queued);
        for pool in pools {
            let language = || pool.language.clone();
            set(&gauge!("ringfence_slots_ready", "language" => language()), pool.ready);
            set(&gauge!("ringfence_slots_being_made", "language" => language()), pool.being_made);
            counter!("ringfence_slots_made_anew_total", "language" => language())
                .absolute(pool.made_anew);
            counter!("ringfence_slots_waited_for_total", "language" => language())
                .absolute(pool.waited_for);
        }
        self.recorder.as_ref().map(PrometheusHandle::render).unwrap_or_default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "such counts are far below 2^52")]
fn set(gauge: &Gauge, count: usize) {
    gauge.set(count as f64);
}

/// Counts a frame that was answered with an error.
pub(crate) fn count_refusal(code: ErrorCode) {
    counter!("ringfence_refusals_total", "code" => code.wire_name()).increment(1);
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Open(Gauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

fn install() -> Option<PrometheusHandle> {
    const SECONDS: [f64; 12] =
        [0.001, 0.002, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0];
    let matcher = Matcher::Suffix("_seconds".into());
    let builder = match PrometheusBuilder::new().set_buckets_for_metric(matcher, &SECONDS) {
        Ok(builder) => builder,
        Err(error) => {
            tracing::error!(%error, "cannot set up metrics");
            return None;
        }
    };
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    match metrics::set_global_recorder(recorder) {
        Ok(()) => Some(handle),
        Err(error) => {
            tracing::error!(%error, "cannot set up metrics");
            None
        }
    }
}
