//! `grpc.health.v1` says to those who ask and those who watch what `/readyz` says.

use std::fs;

use tokio::time::timeout;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
    health_client::HealthClient,
};

use crate::{
    caller::Connection,
    support::{Daemon, PATIENCE},
};

const SERVICES: [&str; 3] = ["", "agbox.v1.SandboxService", "ringfence.v1.ImageService"];

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

async fn client(daemon: &Daemon) -> HealthClient<Connection> {
    let connection = Connection::tcp(daemon.address, &[]).await;
    HealthClient::with_origin(connection, "http://localhost".parse().unwrap())
}

async fn next(watched: &mut tonic::Streaming<HealthCheckResponse>) -> ServingStatus {
    timeout(PATIENCE, watched.message()).await.unwrap().unwrap().unwrap().status()
}

async fn all(client: &mut HealthClient<Connection>) -> [ServingStatus; 3] {
    let mut told = [ServingStatus::Unknown; 3];
    for (service, told) in SERVICES.into_iter().zip(&mut told) {
        *told = client.check(about(service)).await.unwrap().into_inner().status();
    }
    told
}

#[tokio::test]
async fn r09_health_follows_the_store() {
    let daemon = Daemon::start().await;
    let mut client = client(&daemon).await;
    assert_eq!(all(&mut client).await, [ServingStatus::Serving; 3]);
    let unknown = client.check(about("nobody.v1.Service")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    let mut watched = client.watch(about(SERVICES[1])).await.unwrap().into_inner();
    assert_eq!(next(&mut watched).await, ServingStatus::Serving);

    // What is written to a file that nobody finds again is not kept.
    let store = daemon.store();
    fs::rename(&store, store.with_extension("moved")).unwrap();
    fs::write(&store, b"").unwrap();
    let bearer = format!("Bearer {}", daemon.key);
    let headers = [("Authorization", bearer.as_str()), ("Content-Type", "application/json")];
    let body = "{\"name\":\"other\",\"role\":\"user\"}";
    assert_eq!(daemon.ask("POST", "/v1/admin/keys", &headers, body).await.status, 503);
    assert_eq!(next(&mut watched).await, ServingStatus::NotServing);
    assert_eq!(all(&mut client).await, [ServingStatus::NotServing; 3]);
    assert_eq!(daemon.ask("GET", "/readyz", &[], "").await.status, 503);
    drop((client, watched));
    daemon.stop().await;
}

#[tokio::test]
async fn r09_health_says_when_the_server_ends() {
    let daemon = Daemon::start().await;
    let mut client = client(&daemon).await;
    let mut watched = client.watch(about("")).await.unwrap().into_inner();
    assert_eq!(next(&mut watched).await, ServingStatus::Serving);
    let stopped = daemon.begin_stop();
    assert_eq!(next(&mut watched).await, ServingStatus::NotServing);
    drop((client, watched));
    stopped.await;
}
