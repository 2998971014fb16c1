"""As asterisk.py, with mu-law and control messages in plain text, Asterisk's default."""

from asterisk import run

run("WebSocket/voxbridge/c(ulaw)", "/asterisk-text")
