package webhook

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
)

// The API server stores no object above 1.5 MiB; a review holds one and little more.
const reviewBytesMax = 8 << 20

// mutate answers an admission review of the API server. It keeps nothing and changes nothing elsewhere.
func mutate(writer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		http.Error(writer, "an admission review is sent by POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(writer, request.Body, reviewBytesMax))
	if err != nil {
		http.Error(writer, fmt.Sprintf("cannot read the admission review: %v", err), http.StatusRequestEntityTooLarge)
		return
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil {
		http.Error(writer, fmt.Sprintf("the body is no admission review: %v", err), http.StatusBadRequest)
		return
	}
	if review.Request == nil {
		http.Error(writer, "the admission review has no request", http.StatusBadRequest)
		return
	}
	answer, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: respond(review.Request)})
	if err != nil {
		http.Error(writer, "cannot write the answer", http.StatusInternalServerError)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	if _, err := writer.Write(answer); err != nil {
		klog.V(2).InfoS("The API server closed the connection before the answer", "err", err)
	}
}

func respond(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	patch, err := patchPod(request.Object.Raw)
	if err != nil {
		response.Allowed = false
		response.Result = &metav1.Status{Code: http.StatusBadRequest, Message: err.Error()}
		return response
	}
	if len(patch) == 0 {
		return response
	}
	if response.Patch, err = json.Marshal(patch); err != nil {
		response.Allowed = false
		response.Result = &metav1.Status{Code: http.StatusInternalServerError, Message: err.Error()}
		return response
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.PatchType = &kind
	return response
}
