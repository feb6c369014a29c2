// Package config reads and checks FirstTap's settings. Only main.go reads the environment, and passes it in.
package config
