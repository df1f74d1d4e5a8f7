//! `grpc.health.v1`: whether new work is taken, to whoever asks or watches. `/readyz` says the same.

use api::{agbox::v1 as agbox, ringfence::v1 as images};
use engine::tasks::Tasks;
use tokio::{select, sync::watch};
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use crate::{auth::Keyring, serve::Phase};

/// What can be asked about. What has no name is the whole server.
const SERVICES: [&str; 3] =
    ["", agbox::sandbox_service_server::SERVICE_NAME, images::image_service_server::SERVICE_NAME];

/// Says that all of them serve, until the store takes no more writes or the server ends.
///
/// Whoever can ask is let in after everything was taken over, so it is true from the start.
pub(super) async fn serve(
    keyring: Keyring,
    mut phase: watch::Receiver<Phase>,
    tasks: &Tasks,
) -> HealthServer<HealthService> {
    let reporter = HealthReporter::new();
    say(&reporter, ServingStatus::Serving).await;
    let health = HealthServer::new(HealthService::from_health_reporter(reporter.clone()));
    tasks.start("health", async move {
        select! {
            () = keyring.until_store_is_read_only() => {}
            _ = phase.wait_for(|phase| *phase != Phase::Serving) => {}
        }
        say(&reporter, ServingStatus::NotServing).await;
    });
    health
}

async fn say(reporter: &HealthReporter, status: ServingStatus) {
    for service in SERVICES {
        reporter.set_service_status(service, status).await;
    }
}
