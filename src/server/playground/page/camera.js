// The camera: sends its pictures as JPEG, some each second.

const QUALITY = 0.7;

// `send` gets each picture as base64. Shows the camera in `video`. Returns a function that stops it.
export async function sendCamera(video, perSecond, send) {
  const media = await navigator.mediaDevices.getUserMedia({ video: { width: { ideal: 640 }, height: { ideal: 480 } } });
  video.srcObject = media;
  video.hidden = false;
  await video.play();
  const canvas = document.createElement('canvas');
  const timer = setInterval(() => {
    canvas.width = video.videoWidth;
    canvas.height = video.videoHeight;
    canvas.getContext('2d').drawImage(video, 0, 0);
    send(canvas.toDataURL('image/jpeg', QUALITY).split(',')[1]);
  }, 1000 / perSecond);
  return () => {
    clearInterval(timer);
    for (const track of media.getTracks()) track.stop();
    video.srcObject = null;
    video.hidden = true;
  };
}
