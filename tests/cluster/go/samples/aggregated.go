package main

import "net/http"

const (
	group   = "samples.corten.test"
	version = "v1"
)

// aggregated serves the group's discovery and `callers`, whose one object is named after whoever asks. That name comes in
// a header that counts only because the connection was made with the front proxy's certificate.
func aggregated() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/"+group+"/"+version, func(response http.ResponseWriter, _ *http.Request) {
		answer(response, map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group + "/" + version,
			"resources": []map[string]any{{
				"name": "callers", "singularName": "caller", "namespaced": false, "kind": "Caller", "verbs": []string{"list"},
			}},
		})
	})
	mux.HandleFunc("GET /apis/"+group+"/"+version+"/callers", func(response http.ResponseWriter, request *http.Request) {
		caller := map[string]any{
			"kind": "Caller", "apiVersion": group + "/" + version,
			"metadata": map[string]any{"name": request.Header.Get("X-Remote-User")},
		}
		answer(response, map[string]any{
			"kind": "CallerList", "apiVersion": group + "/" + version, "metadata": map[string]any{}, "items": []any{caller},
		})
	})
	return mux
}
