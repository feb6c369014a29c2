package handler

import (
	"fmt"
	"reflect"
	"testing"
)

// TestNewRefuses an API that lacks a required field, and names the field.
func TestNewRefuses(t *testing.T) {
	var whole API
	newWorld(t, func(a *API) { whole = *a })
	for _, name := range []string{
		"Store", "Acceptor", "DriverService", "Backoffice", "Tokens", "Keys", "Jobs", "Streams", "Revocations", "Now", "Log",
	} {
		func() {
			defer func() {
				if got, want := fmt.Sprint(recover()), "handler: API."+name+" is missing"; got != want {
					t.Errorf("without %s: %s", name, got)
				}
			}()
			api := whole
			reflect.ValueOf(&api).Elem().FieldByName(name).SetZero()
			New(api)
		}()
	}
}
