package fcmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// The error codes of FCM.
const (
	codeInvalid      = "INVALID_ARGUMENT"
	codeUnregistered = "UNREGISTERED"
	codeMismatch     = "SENDER_ID_MISMATCH"
	codeQuota        = "QUOTA_EXCEEDED"
	codeUnavailable  = "UNAVAILABLE"
	codeInternal     = "INTERNAL"
	codeThirdParty   = "THIRD_PARTY_AUTH_ERROR"
	noCode           = "-"
)

const (
	typeFCM        = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
	typeBadRequest = "type.googleapis.com/google.rpc.BadRequest"
)

// refusal is an error answer.
type refusal struct {
	status  int
	code    string // FcmError's; "" for none
	message string
	field   string // a BadRequest's; "" for none
	plain   bool   // the answer of a proxy, not of FCM
}

func invalid(field, message string) *refusal {
	return &refusal{status: http.StatusBadRequest, code: codeInvalid, message: message, field: field}
}

// refusalOf returns FCM's answer with a status; with code "" it has the usual error code, with "-" none.
func refusalOf(status int, code string) *refusal {
	_, usual, message := usualOf(status)
	switch code {
	case "":
		code = usual
	case noCode:
		code = ""
		switch status {
		case http.StatusUnauthorized:
			message = "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or " +
				"other valid authentication credential."
		case http.StatusForbidden:
			message = "Permission 'cloudmessaging.messages.create' denied on resource (or it may not exist)."
		}
	}
	return &refusal{status: status, code: code, message: message, plain: usual == ""}
}

// usualOf returns the google.rpc status, FCM's error code and the message for an HTTP status; "" if FCM does not use it.
func usualOf(status int) (rpc, code, message string) {
	switch status {
	case http.StatusBadRequest:
		return "INVALID_ARGUMENT", codeInvalid, "Request contains an invalid argument."
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED", codeThirdParty, "Auth error from APNS or Web Push Service"
	case http.StatusForbidden:
		return "PERMISSION_DENIED", codeMismatch, "SenderId mismatch"
	case http.StatusNotFound:
		return "NOT_FOUND", codeUnregistered, "Requested entity was not found."
	case http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED", codeQuota, "Quota exceeded for quota metric 'Send requests'."
	case http.StatusInternalServerError:
		return "INTERNAL", codeInternal, "Internal error encountered."
	case http.StatusServiceUnavailable:
		return "UNAVAILABLE", codeUnavailable, "The service is currently unavailable."
	}
	return "", "", ""
}

type errorBody struct {
	Error struct {
		Code    int           `json:"code"`
		Message string        `json:"message"`
		Status  string        `json:"status"`
		Details []errorDetail `json:"details,omitempty"`
	} `json:"error"`
}

type errorDetail struct {
	Type            string      `json:"@type"`
	ErrorCode       string      `json:"errorCode,omitempty"`
	FieldViolations []violation `json:"fieldViolations,omitempty"`
}

type violation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// body returns the answer's body and its content type.
func (f *refusal) body() (body []byte, contentType string) {
	if f.plain {
		text := http.StatusText(f.status)
		page := fmt.Sprintf("<!DOCTYPE html><title>Error %d (%s)</title><p><b>%d.</b> That's an error.</p>\n", f.status, text, f.status)
		return []byte(page), "text/html; charset=UTF-8"
	}
	var e errorBody
	e.Error.Code, e.Error.Message = f.status, f.message
	e.Error.Status, _, _ = usualOf(f.status)
	if f.code != "" {
		e.Error.Details = append(e.Error.Details, errorDetail{Type: typeFCM, ErrorCode: f.code})
	}
	if f.field != "" {
		e.Error.Details = append(e.Error.Details,
			errorDetail{Type: typeBadRequest, FieldViolations: []violation{{f.field, f.message}}})
	}
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // strings and numbers have an encoding
	}
	return body, contentJSON
}
