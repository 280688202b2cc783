//! The admin routes as a part of the API document, made from the route table.

mod operations;
mod schemas;

use mesh_server::openapi::put;
use serde_json::{Map, Value, json};

use crate::ROUTES;

/// What the admin port adds to the document of the traffic port, whose schemas it uses.
pub fn openapi() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        put(&mut paths, route.method, route.path, operations::describe(route));
    }
    json!({
        "tags": [{"name": "admin", "description": "The admin port, 10106 unless configured."}],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "adminToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`eventmesh.admin.token`, whose holder is an `admin`, or one of the token file. \
                                    The list with it names the role that is needed: an `operator` may what a \
                                    `viewer` may, an `admin` everything.",
                },
                "metricsToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "`eventmesh.admin.security.metrics.token`: metrics and nothing else.",
                },
            },
        },
    })
}
