//! The images of a server: typed calls of `ringfence.v1`, by the main port.

use std::fmt;

use api::ringfence::v1::{
    self, image_service_client::ImageServiceClient, pull_image_response::Told,
};
use tonic::Streaming;

pub use v1::{Image, PullProgress, RemoveImageResponse as Removed};

use crate::{
    ClientError,
    address::Address,
    grpc::{self, Connection, within},
};

/// The images of one server. Cheap to clone.
#[derive(Clone)]
pub struct Images {
    service: ImageServiceClient<Connection>,
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images").finish_non_exhaustive()
    }
}

/// A pull under way. Dropping it stops the pull, unless others want the same image.
#[derive(Debug)]
pub struct Pull {
    told: Streaming<v1::PullImageResponse>,
}

/// What a pull tells.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Progress(PullProgress),
    /// It is here. Nothing comes after this.
    Here(Image),
}

impl Images {
    /// Connects. The key is looked at with the first call.
    pub async fn connect(address: &Address, key: &str) -> Result<Self, ClientError> {
        let connection = grpc::connect(address, key).await?;
        Ok(Self { service: ImageServiceClient::new(connection) })
    }

    /// Begins to bring an image to the server, or what is there up to date.
    pub async fn pull(&self, name: &str) -> Result<Pull, ClientError> {
        let request = v1::PullImageRequest { name: name.to_owned() };
        let told = self.service.clone().pull_image(request).await?.into_inner();
        Ok(Pull { told })
    }

    pub async fn list(&self) -> Result<Vec<Image>, ClientError> {
        let request = within(v1::ListImagesRequest {});
        Ok(self.service.clone().list_images(request).await?.into_inner().images)
    }

    /// Takes a name of an image away, or an image by its id.
    pub async fn remove(&self, name: &str) -> Result<Removed, ClientError> {
        let request = within(v1::RemoveImageRequest { name: name.to_owned() });
        Ok(self.service.clone().remove_image(request).await?.into_inner())
    }
}

impl Pull {
    /// Returns what comes next.
    pub async fn next(&mut self) -> Result<Step, ClientError> {
        let told = self.told.message().await?.ok_or(ClientError::Incomplete)?.told;
        match told {
            Some(Told::Progress(progress)) => Ok(Step::Progress(progress)),
            Some(Told::Image(image)) => Ok(Step::Here(image)),
            None => Err(ClientError::Incomplete),
        }
    }
}
