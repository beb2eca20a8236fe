"""HTTP for the routes: request, response, route, authentication, errors, cursors, event streams."""
