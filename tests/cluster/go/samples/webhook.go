package main

import (
	"encoding/json"
	"net/http"
)

// What has this label is refused.
const refusedLabel = "samples.corten.test/refuse"

// The part of admission.k8s.io/v1 AdmissionReview that is used here.
type admissionReview struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Request    *admissionRequest  `json:"request,omitempty"`
	Response   *admissionResponse `json:"response,omitempty"`
}

type admissionRequest struct {
	UID    string `json:"uid"`
	Object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	} `json:"object"`
}

type admissionResponse struct {
	UID     string  `json:"uid"`
	Allowed bool    `json:"allowed"`
	Status  *status `json:"status,omitempty"`
}

type status struct {
	Message string `json:"message"`
}

func review(response http.ResponseWriter, request *http.Request) {
	var asked admissionReview
	if err := json.NewDecoder(request.Body).Decode(&asked); err != nil || asked.Request == nil {
		http.Error(response, "not an AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	verdict := &admissionResponse{UID: asked.Request.UID, Allowed: true}
	if _, refused := asked.Request.Object.Metadata.Labels[refusedLabel]; refused {
		verdict.Allowed = false
		verdict.Status = &status{Message: "refused by the sample webhook"}
	}
	answer(response, admissionReview{APIVersion: asked.APIVersion, Kind: asked.Kind, Response: verdict})
}
