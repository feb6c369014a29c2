package handler

import "github.com/labstack/echo/v4"

// FirebaseSignIn is what a browser needs to sign a driver in with Firebase Auth. All of it is public.
type FirebaseSignIn struct {
	Project string
	APIKey  string // the project's Web API key
	// Emulator is the Auth emulator's address, http://host:port, which stands for Firebase's; "" for Firebase itself.
	Emulator string
}

// hosts returns what the driver's page talks to besides this service.
func (f *FirebaseSignIn) hosts() []string {
	switch {
	case f == nil:
		return nil
	case f.Emulator != "":
		return []string{f.Emulator}
	}
	return []string{"https://identitytoolkit.googleapis.com", "https://securetoken.googleapis.com"}
}

type signInView struct {
	// Firebase is null where a token that was issued here is the only way.
	Firebase *firebaseView `json:"firebase"`
}

type firebaseView struct {
	Project  string  `json:"project"`
	APIKey   string  `json:"api_key"`
	Emulator *string `json:"emulator"`
}

func (h *handler) signInWays(c echo.Context) error {
	var v signInView
	if f := h.Firebase; f != nil {
		v.Firebase = &firebaseView{Project: f.Project, APIKey: f.APIKey, Emulator: nullable(f.Emulator)}
	}
	return writeJSON(c, 200, v)
}
