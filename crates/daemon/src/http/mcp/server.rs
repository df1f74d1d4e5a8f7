//! Answers messages of the protocol with what the tools do.

use axum::http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult,
        ErrorCode, ExtensionCapabilities, Implementation, JsonObject, ListToolsResult,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool as ShownTool,
    },
    service::RequestContext,
};
use serde_json::{Map, Value};

use super::{call::Call, environment, progress, tools::Tool};

/// What the methods `environment/…` are announced as.
const EXTENSION: &str = "ringfence/environment";

const INSTRUCTIONS: &str = "Isolated sandboxes. Call environment_acquire with a thread_id of your own choice to get a \
    sandbox, then use exec, read, write, edit, list, glob and grep with its session_id; files stay between calls, in \
    /workspace. run_code runs a program once in a fresh environment and needs no session. Errors say what to do next.";

/// The server that every message is handed to. It knows nothing: what there is to know comes with the message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server;

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut extensions = ExtensionCapabilities::new();
        extensions.insert(EXTENSION.to_owned(), JsonObject::new());
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_extensions_with(extensions).build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("ringfence", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(Tool::list().to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<ShownTool> {
        Tool::named(name)?.shown().cloned()
    }

    async fn call_tool(
        &self,
        asked: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let call = call(&context)?;
        let Some(tool) = Tool::named(&asked.name) else {
            return Err(ErrorData::invalid_params("there is no such tool; see tools/list", None));
        };
        let (call, hearer) = match context.meta.get_progress_token() {
            Some(token) => {
                let (telling, hearer) = progress::new(context.peer.clone(), token);
                (call.telling(telling), Some(hearer))
            }
            None => (call, None),
        };
        let work = Box::pin(tool.call(&call, asked.arguments.unwrap_or_default()));
        let answer = call.answer(context.ct.cancelled(), work);
        let answer = match hearer {
            Some(hearer) => hearer.until(answer).await,
            None => answer.await,
        };
        let told = match answer {
            Ok(told) => told,
            Err(refused) => refused.told(&call.request()),
        };
        Ok(CallToolResult::from(told).into())
    }

    async fn on_custom_request(
        &self,
        asked: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let call = call(&context)?;
        let params = match asked.params {
            None => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return Err(ErrorData::invalid_params("params must be an object", None)),
        };
        let Some(work) = environment::method(&call, &asked.method, params) else {
            let code = ErrorCode::METHOD_NOT_FOUND;
            return Err(ErrorData::new(code, "there is no such method", None));
        };
        match call.answer(context.ct.cancelled(), work).await {
            Ok(value) => Ok(CustomResult::new(value)),
            Err(refused) => Err(refused.answer(&call.request())),
        }
    }
}

/// Returns what the entrance has left with the message.
fn call(context: &RequestContext<RoleServer>) -> Result<Call, ErrorData> {
    let parts = context.extensions.get::<Parts>();
    let call = parts.and_then(|parts| parts.extensions.get::<Call>()).cloned();
    call.ok_or_else(|| {
        tracing::error!("a message has come by another way than its entrance");
        ErrorData::internal_error("the server failed; its log says more", None)
    })
}
